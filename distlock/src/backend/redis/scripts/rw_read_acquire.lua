-- Takes a read lock for an owner, once: beside other readers, or inside the write lock that is around it.
-- States the count 1, adds nothing and never shortens a lease: sent twice it leaves what it left once. While a writer of
-- ours waits for its turn only those get in who are in already. Who is refused leaves a mark, so that the writer's end
-- gives readers their turn; it outlives the answer by the patience, in which the reader asks again.
-- KEYS  1 lock (hash: mode, owner -> count)   2 turn (the writer's owner, or 'readers')   3 mark: readers wait
-- ARGV  1 owner   2 lease in ms   3 stem of the timeout keys   4 writer around it, or empty   5 patience in ms
-- Reply nil granted   n >= 0 refused for n ms   -1 held by another with no end set
local lock, turn, mark = KEYS[1], KEYS[2], KEYS[3]
local owner, lease, stem, around, patience = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local timeouts = stem .. owner .. ':rwlock_timeout:'

local function refuse(left)
  local keep = string.format('%.0f', math.max(left, 0) + tonumber(patience))
  -- Before the first write: it passes when memory is out, and after it the SET passes, too.
  redis.call('PEXPIRE', mark, keep)
  redis.call('SET', mark, '1', 'PX', keep)
  return left
end

local mode = redis.call('HGET', lock, 'mode')
-- A lock of another kind is held by another, and stays as it is.
if not mode and redis.call('EXISTS', lock) == 1 then return redis.call('PTTL', lock) end

local again = redis.call('HEXISTS', lock, owner) == 1 and redis.call('EXISTS', timeouts .. '1') == 1
local inside = around ~= '' and redis.call('HEXISTS', lock, around .. ':write') == 1
if not again and not inside then
  if mode == 'write' then return refuse(redis.call('PTTL', lock)) end
  local whose = redis.call('GET', turn)
  if whose and whose ~= 'readers' then return refuse(redis.call('PTTL', turn)) end
end

local left = tonumber(lease)
if again then left = math.max(left, redis.call('PTTL', timeouts .. '1')) end
-- Before the first write: it parses the lease also where the key is missing, so a bad one fails before anything is
-- stored, and after it the others pass also when memory is out.
redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), left))
for hold = 2, tonumber(redis.call('HGET', lock, owner) or '0') do redis.call('DEL', timeouts .. hold) end
if not mode then redis.call('HSET', lock, 'mode', 'read') end
redis.call('HSET', lock, owner, '1')
redis.call('SET', timeouts .. '1', '1', 'PX', left)
if not mode then redis.call('PEXPIRE', lock, left) end
return nil
