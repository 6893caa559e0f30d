-- Acquires a write lock for an owner if the lock is free or already this owner's.
-- Sets the count to 1, adds nothing and never shortens a lease, so it has the same effect when it is sent twice. When a
-- waiter is refused, it takes the writers' turn, or keeps it: then none of our further readers is granted before it. In
-- the readers' turn it cannot take it, and is told when that turn ends, since no message is sent then.
-- KEYS  1 lock (hash: mode, owner -> count)   2 turn (the writer's owner, or 'readers')
-- Undeclared  timeout keys, <stem><owner>:rwlock_timeout:<n>: only the lock tells which there are; they have its hash tag
-- ARGV  1 owner   2 lease in ms   3 how long its turn is kept in ms, zero: it does not wait   4 channel   5 stem of the timeout keys
-- Reply nil granted   n >= 0 held by others, or the readers' turn, for n ms   -1 held without an end   array: n, an owner, how many others
local lock, turn = KEYS[1], KEYS[2]
local owner, lease, place, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local writer = owner .. ':write'

local mode, again = unpack(redis.call('HMGET', lock, 'mode', writer))
if again then
  redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(lease)))
  redis.call('HSET', lock, writer, '1')
  return nil
end
local whose = redis.call('GET', turn)
if not mode and redis.call('EXISTS', lock) == 0 then
  if whose == 'readers' and place ~= '0' then return redis.call('PTTL', turn) end
  -- Before the first write: a PEXPIRE checks the lease even if the key is missing, so an invalid one fails before
  -- anything is stored. It also passes when memory is full, and then lets the HSET pass.
  redis.call('PEXPIRE', lock, lease)
  redis.call('HSET', lock, 'mode', 'write', writer, '1')
  redis.call('PEXPIRE', lock, lease)
  -- The readers that its turn kept out sleep until that turn ends, though this lease ends earlier, and no message is
  -- sent when a lease expires.
  if redis.call('PTTL', turn) > tonumber(lease) then publish(channel, '1') end
  redis.call('DEL', turn)
  return told(nil)
end
local left = redis.call('PTTL', lock)
local stem = mode and ARGV[5] or nil
-- A lock of another kind and other data have no turns.
if place == '0' or not is_lock(lock, mode) then return refusal(lock, left, stem) end
if whose == 'readers' then
  local turn_left = redis.call('PTTL', turn)
  if left < 0 then return refusal(lock, turn_left, stem) end
  return refusal(lock, math.min(left, turn_left), stem)
end
if not whose or whose == owner then
  -- A PEXPIRE first, for the reasons above.
  redis.call('PEXPIRE', turn, place)
  redis.call('SET', turn, owner, 'PX', place)
end
return refusal(lock, left, stem)
