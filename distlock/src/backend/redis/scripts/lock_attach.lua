-- Puts a new owner in the place of the one that a detached hold has. Sets the count to 1, and never shortens a lease.
-- Has the same effect when it is sent twice: the new owner is in its place then. What is sent for the former owner finds nothing.
-- KEYS  1 lock (hash: owner -> count)
-- ARGV  1 owner   2 lease in ms   3 former owner
-- Reply nil granted   -1 neither of them holds it
local lock = KEYS[1]
local owner, lease, former = ARGV[1], ARGV[2], ARGV[3]

if redis.call('HEXISTS', lock, owner) == 0 and redis.call('HEXISTS', lock, former) == 0 then
  -- Changes nothing. A master that has become a replica refuses it: the new master may have the hold.
  redis.call('HDEL', lock, former)
  return -1
end
-- First write: passes when memory is full, and lets the next ones pass. An invalid lease fails before anything is stored.
redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(lease)))
redis.call('HSET', lock, owner, '1')
if former ~= owner then redis.call('HDEL', lock, former) end
return nil
