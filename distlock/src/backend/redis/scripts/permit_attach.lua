-- Puts a new owner in the place of the one that detached permits have, if it still has all of them. Their ids are derived from
-- the owner. Never shortens a lease.
-- Has the same effect when it is sent twice: the new owner has the permits then. A withdrawn owner gets nothing.
-- KEYS  1 semaphore (number of free permits)   2 permits (sorted set: id -> end in ms)   3 mark of a withdrawn owner
-- ARGV  1 seed of the ids   2 how many   3 lease in ms   4 seed of the former ids   5 how long it stays after a use in ms, zero: as before
-- Reply nil granted   -1 neither of them has the permits, or there is no number
local semaphore, permits, ended = KEYS[1], KEYS[2], KEYS[3]
local seed, many, lease, former, stays = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local now = clock()

-- The ends of an owner's permits, if it still has them all; and how many are there.
local function ends_of(of)
  local ends, known, alive = {}, 0, 0
  if many > redis.call('ZCARD', permits) then return nil, 0 end
  for n = 1, many do
    local score = redis.call('ZSCORE', permits, id(of, n - 1))
    if score then known = known + 1 end
    ends[n] = tonumber(score or 0)
    if ends[n] > now then alive = alive + 1 end
  end
  return alive == many and ends or nil, known
end

-- Before anything is written: this fails on a value that is not a semaphore.
local is_set = free(semaphore)
if redis.call('EXISTS', ended) == 1 then return -1 end
local mine, known = ends_of(seed)
-- With a part of its own permits it would get more than it gives.
if not mine and known > 0 then return -1 end
local ends = is_set and (mine or ends_of(former))
-- Changes nothing by itself. A master that has become a replica refuses it: the new master may have the permits.
begin_writing(permits)
if not ends then return -1 end
local expires = end_of(lease, now)
for n = 1, many do
  -- Added first: the set is never empty, so it keeps its TTL.
  redis.call('ZADD', permits, digits(math.max(expires, ends[n])), id(seed, n - 1))
  if not mine then redis.call('ZREM', permits, id(former, n - 1)) end
end
used_for(lease, stays, semaphore, permits)
return nil
