-- Ends an owner's hold, whatever its count, which frees the lock, and notifies its waiters. Removes the owner's field and
-- no other one: a hash without fields is gone.
-- Does no harm when it is sent twice, and never touches another owner's hold.
-- KEYS  1 lock (hash: owner -> count)
-- ARGV  1 owner   2 channel
-- Reply n >= 0 freed, and n subscribers were notified   -1 this owner holds nothing
local lock = KEYS[1]
local owner, channel = ARGV[1], ARGV[2]

if redis.call('HDEL', lock, owner) == 0 then return -1 end
return told(publish(channel, '0'))
