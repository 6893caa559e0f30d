-- Tries what a server may refuse to scripts, for people who run it: to publish, and to use a key that is not declared, as
-- read/write locks do. Publishes one message, for which nobody waits, and only reads.
-- KEYS  one key, so that a cluster runs this where the other names are
-- Undeclared  a timeout key, <stem><owner>:rwlock_timeout:<n>: that is what is tried; it has the key's hash tag
-- ARGV  1 channel   2 stem of the timeout keys, with an owner
-- Reply array: how many subscribers were notified, nil if the server refuses   why it refuses to publish, or nil   why it refuses the key, or nil
local channel, undeclared = ARGV[1], ARGV[2] .. ':rwlock_timeout:' .. 1

local heard = publish(channel, '0')
local found = redis.pcall('EXISTS', undeclared)
return { not untold and heard, untold or false, type(found) == 'table' and found.err }
