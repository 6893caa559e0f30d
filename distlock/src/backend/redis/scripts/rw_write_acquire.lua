-- Takes a write lock for an owner, once: where the lock is free, or where the owner has it already.
-- States the count 1, adds nothing and never shortens a lease: sent twice it leaves what it left once. Refused, one that
-- waits takes the turn, or keeps the one it has: then no further reader of ours gets in before it.
-- KEYS  1 lock (hash: mode, owner -> count)   2 turn (the writer's owner, or 'readers')
-- ARGV  1 owner   2 lease in ms   3 how long its turn is kept in ms, zero: it does not wait   4 channel
-- Reply nil granted   n >= 0 held by others, or the readers' turn, for n ms   -1 held by another with no end set
local lock, turn = KEYS[1], KEYS[2]
local owner, lease, place, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local writer = owner .. ':write'

if redis.call('HEXISTS', lock, writer) == 1 then
  redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(lease)))
  redis.call('HSET', lock, writer, '1')
  return nil
end
local whose = redis.call('GET', turn)
if redis.call('EXISTS', lock) == 0 then
  if whose == 'readers' and place ~= '0' then return redis.call('PTTL', turn) end
  -- Before the first write: it parses the lease also where the key is missing, so a bad one fails before anything is
  -- stored, and after it the HSET passes also when memory is out.
  redis.call('PEXPIRE', lock, lease)
  redis.call('HSET', lock, 'mode', 'write', writer, '1')
  redis.call('PEXPIRE', lock, lease)
  -- Readers that its turn kept out wait for the end of that, and nobody tells of an expiry.
  if redis.call('PTTL', turn) > tonumber(lease) then redis.call('PUBLISH', channel, '1') end
  redis.call('DEL', turn)
  return nil
end
-- None to take at a lock of another kind.
local waits = place ~= '0' and redis.call('HEXISTS', lock, 'mode') == 1
if waits and (not whose or whose == owner) then
  -- As above, also for the turn.
  redis.call('PEXPIRE', turn, place)
  redis.call('SET', turn, owner, 'PX', place)
end
return redis.call('PTTL', lock)
