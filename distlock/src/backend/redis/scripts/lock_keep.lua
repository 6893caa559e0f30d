-- Ends an owner's hold, whatever its count, and keeps the lock taken without a holder for some time. Notifies the
-- waiters, which were answered the lease that the hold had.
-- Removes the owner's field, so a late renewal finds no hold. Does no harm when it is sent twice or late: it never
-- creates a lock and never touches another owner's.
-- KEYS  1 lock (hash: owner -> count)
-- ARGV  1 owner   2 channel   3 rest in ms
-- Reply n >= 0 ended, and n subscribers were notified   -1 this owner holds nothing
local lock = KEYS[1]
local owner, channel, rest = ARGV[1], ARGV[2], ARGV[3]

if redis.call('HDEL', lock, owner) == 0 then return -1 end
-- Fields of other programs stay, with the TTL that they have.
if redis.call('EXISTS', lock) == 0 then
  redis.call('HSET', lock, owner .. ':rest', '1')
  redis.call('PEXPIRE', lock, rest)
end
return told(publish(channel, '0'))
