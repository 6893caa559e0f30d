-- Acquires a read lock for an owner, beside other readers or nested in the owner's write lock.
-- Sets the count to 1, adds nothing and never shortens a lease, so it has the same effect when it is sent twice. While
-- one of our writers waits and has its turn, only readers that hold the lock already are granted. A refused reader
-- leaves a mark, which makes the writer's release give the readers their turn. The mark outlives the answer by the
-- patience, within which the reader repeats its attempt.
-- KEYS  1 lock (hash: mode, owner -> count)   2 turn (the writer's owner, or 'readers')   3 mark: readers wait
-- Undeclared  timeout keys, <stem><owner>:rwlock_timeout:<n>: only the lock tells which there are; they have its hash tag
-- ARGV  1 owner   2 lease in ms   3 stem of the timeout keys   4 writer it is nested in, or empty   5 patience in ms
-- Reply nil granted   n >= 0 refused for n ms   -1 held without an end   array: n, an owner, how many others
local lock, turn, mark = KEYS[1], KEYS[2], KEYS[3]
local owner, lease, stem, around, patience = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local timeouts = stem .. owner .. ':rwlock_timeout:'

local function refuse(left)
  local keep = string.format('%.0f', math.max(left, 0) + tonumber(patience))
  -- Before the first write: it passes when memory is full, and then lets the SET pass.
  redis.call('PEXPIRE', mark, keep)
  redis.call('SET', mark, '1', 'PX', keep)
  return refusal(lock, left)
end

local mode, count = unpack(redis.call('HMGET', lock, 'mode', owner))
local inside = around ~= '' and redis.call('HEXISTS', lock, around .. ':write') == 1
-- A lock of another kind and other data count as held by another owner, and are left as they are. A hash with an owner of
-- ours was recognised when that owner was granted.
if not mode then
  if redis.call('EXISTS', lock) == 1 then return refusal(lock, redis.call('PTTL', lock)) end
elseif not count and not inside then
  local is_known = mode == 'read' and left_of_one_reader(lock, stem) > 0
  if not is_known and not is_lock(lock, mode) then return redis.call('PTTL', lock) end
end

-- Where keys that are not declared are refused, by an engine or by the patterns of the user's keys, one of these two looks at
-- the owner's timeout fails, before anything is granted.
local again = (count or inside) and redis.call('EXISTS', timeouts .. '1') == 1
if not again and not inside then
  if mode == 'write' then return refuse(redis.call('PTTL', lock)) end
  local whose = redis.call('EXISTS', turn, timeouts .. '1') > 0 and redis.call('GET', turn)
  if whose and whose ~= 'readers' then return refuse(redis.call('PTTL', turn)) end
end

local left = tonumber(lease)
if again then left = math.max(left, redis.call('PTTL', timeouts .. '1')) end
-- Before the first write: a PEXPIRE checks the lease even if the key is missing, so an invalid one fails before
-- anything is stored. It also passes when memory is full, and then lets the other writes pass.
if mode then lengthen(lock, left) else redis.call('PEXPIRE', lock, left) end
for hold = 2, entries(count) do redis.call('DEL', timeouts .. hold) end
if mode then
  redis.call('HSET', lock, owner, '1')
else
  redis.call('HSET', lock, 'mode', 'read', owner, '1')
  redis.call('PEXPIRE', lock, left)
end
redis.call('SET', timeouts .. '1', '1', 'PX', left)
return nil
