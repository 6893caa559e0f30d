-- Takes a lock for an owner, once: where it is free, or where the owner has it already.
-- States the count 1, adds nothing and never shortens a lease: sent twice it leaves what it left once.
-- KEYS  1 lock (hash: owner -> count)
-- ARGV  1 owner   2 lease in ms
-- Reply nil granted   n >= 0 held by another for n ms   -1 held by another with no end set
local lock = KEYS[1]
local owner, lease = ARGV[1], ARGV[2]

if redis.call('EXISTS', lock) == 0 then
  -- Before the first write: it parses the lease also where the key is missing, so a bad one fails before anything is
  -- stored, and after it the HSET passes also when memory is out.
  redis.call('PEXPIRE', lock, lease)
  redis.call('HSET', lock, owner, '1')
  redis.call('PEXPIRE', lock, lease)
  return nil
end
if redis.call('HEXISTS', lock, owner) == 0 then return redis.call('PTTL', lock) end
redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(lease)))
redis.call('HSET', lock, owner, '1')
return nil
