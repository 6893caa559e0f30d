-- Frees a lock, whoever holds it, and wakes who waits for it.
-- KEYS  1 lock (hash: owner -> count)
-- ARGV  1 channel
-- Reply 1 freed   0 it was free
local lock = KEYS[1]
local channel = ARGV[1]

-- Asking for a field fails on a value of another type, which is nobody's lock and must stay.
redis.call('HEXISTS', lock, '')
if redis.call('DEL', lock) == 0 then return 0 end
redis.call('PUBLISH', channel, '0')
return 1
