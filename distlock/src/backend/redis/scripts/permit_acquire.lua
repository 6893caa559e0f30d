-- Acquires permits for an owner: all of them or none. Their ids are derived from the owner.
-- Never shortens a lease, and counts no permit twice, so it has the same effect when it is sent twice. A withdrawn
-- owner gets nothing.
-- KEYS  1 semaphore (number of free permits)   2 permits (sorted set: id -> end in ms)   3 mark of a withdrawn owner
-- ARGV  1 seed of the ids   2 how many   3 lease in ms   4 channel   5 how long it stays after a use in ms, zero: as before
-- Reply nil granted   array: n >= 0, how many are acquired: refused, the next permit expires in n ms   array: -1, how many are acquired: refused, no permit has an end   -2 there is no semaphore
local semaphore, permits, ended = KEYS[1], KEYS[2], KEYS[3]
local seed, many, lease, channel, stays = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]

local now = clock()
local expires = end_of(lease, now)
local swept, left = sweep(semaphore, permits, now)

local function take()
  if not left or redis.call('EXISTS', ended) == 1 then return false end
  local acquired = redis.call('ZCARD', permits)
  -- Below 0 if the total was set to less than what is acquired. An owner that has all of its permits needs none.
  local room = math.max(left, 0)
  if many > room + acquired then return false end
  local ids, ends, missing = {}, {}, 0
  for n = 1, many do
    ids[n] = id(seed, n - 1)
    local score = redis.call('ZSCORE', permits, ids[n])
    if not score then missing = missing + 1 end
    ends[n] = math.max(expires, tonumber(score or 0))
  end
  if missing > room then return false end
  -- With a permit of its own there it is a semaphore's.
  if acquired > 0 and missing == many then check_permits(permits) end
  begin_writing(permits)
  if missing > 0 then redis.call('DECRBY', semaphore, digits(missing)) end
  left = left - missing
  for n = 1, many do redis.call('ZADD', permits, digits(ends[n]), ids[n]) end
  used_for(lease, stays, semaphore, permits)
  return true
end

local granted = take()
if swept > 0 then tell(channel, left) end
if granted then return told(nil) end
if not left then
  -- Changes nothing by itself. A master that has become a replica refuses it: the new master may have the number.
  begin_writing(permits)
  return told(-2)
end
-- The highest end is that of Redisson's permanent permits, which never expire.
local nearest = redis.call('ZRANGEBYSCORE', permits, '0', '(922337203685477', 'WITHSCORES', 'LIMIT', '0', '1')
local acquired = redis.call('ZCARD', permits)
if #nearest == 0 then return told({ -1, acquired }) end
-- One that has ended is taken back by the next script.
return told({ math.max(math.floor(nearest[2] - now), 0), acquired })
