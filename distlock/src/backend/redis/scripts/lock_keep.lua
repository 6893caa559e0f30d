-- Ends an owner's hold, whatever its count, and leaves the lock taken by nobody for the rest of a time. Wakes who waits for
-- it: they trusted the lease that it had, and learn of the new one.
-- The owner's field goes, so that no renewal of it that comes late finds a hold; sent twice, or late, it does no harm.
-- Never creates a lock and never touches another owner's.
-- KEYS  1 lock (hash: owner -> count)
-- ARGV  1 owner   2 channel   3 rest in ms
-- Reply n >= 0 ended, and n listeners heard of it   -1 this owner holds nothing
local lock = KEYS[1]
local owner, channel, rest = ARGV[1], ARGV[2], ARGV[3]

if redis.call('HEXISTS', lock, owner) == 0 then return -1 end
redis.call('DEL', lock)
redis.call('HSET', lock, owner .. ':rest', '1')
redis.call('PEXPIRE', lock, rest)
return redis.call('PUBLISH', channel, '0')
