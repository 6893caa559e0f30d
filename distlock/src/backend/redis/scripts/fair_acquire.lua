-- Acquires a fair lock for an owner if the lock is free and no other waiter is first in the queue, or if it already is
-- this owner's. When a waiter is refused, it keeps its place in the queue, or gets the last one.
-- Sets the count to 1 and the time from which the owner counts as dead, adds nothing and never shortens a lease, so it
-- has the same effect when it is sent twice.
-- KEYS  1 lock (hash: owner -> count)   2 queue (list)   3 timeouts (sorted set)   4 ours (sorted set)
-- ARGV  1 owner   2 lease in ms   3 how long its place is kept in ms, zero: it does not wait   4 the lock's channel
-- Reply nil granted   n >= 0 others are in the way for n ms   -1 held without an end   array: n, the owner, how many others
local owner, lease, place, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local DEFAULT = 300000 -- how long Redisson keeps the place of a waiter that sets no limit

-- How much the foreign waiters before the owner may still subtract from the owner's time. Each subtracts its own wait
-- when it acquires or gives up. That wait shows as the gap between its time and the time of the waiter before it. It
-- does not show for the first, which is treated as if it had just arrived.
-- Also the foreign waiters right behind the owner.
local function owed_to_foreign()
  local followers = {}
  if not has_foreign(redis.call('LLEN', queue)) then return 0, followers end
  local first, last, is_behind = nil, nil, false
  for _, one in ipairs(redis.call('LRANGE', queue, 0, MOST_WAITERS - 1)) do
    if one == owner then
      is_behind = true
    elseif is_behind then
      if is_ours(one) then break end
      followers[#followers + 1] = one
    elseif not is_ours(one) then
      local dead_at = time_of(redis.call('ZSCORE', timeouts, one) or now)
      first = first or dead_at
      last = math.max(last or dead_at, dead_at)
    end
  end
  return first and math.max(last - now, last - first + DEFAULT) or 0, followers
end

-- Whether other clients removed the owner from the queue as dead, although it is alive.
local function was_dropped()
  return place ~= '0' and redis.call('ZSCORE', ours, owner) and not redis.call('ZSCORE', timeouts, owner)
end

-- Puts the owner back, before all foreign waiters. Which of ours arrived first is not known any more. It comes back with the time of
-- its last sign: those behind it were not moved when it was removed.
-- More waiters are looked at than for a sign of life: all of ours that were removed with it may have come back already.
local MOST_BACK = 1000
local function come_back()
  redis.call('LREM', queue, 0, owner)
  redis.call('ZADD', timeouts, redis.call('ZSCORE', ours, owner), owner)
  local next = nil
  for _, one in ipairs(redis.call('LRANGE', queue, 0, MOST_BACK - 1)) do
    if not is_ours(one) then
      next = one
      break
    end
  end
  if next then
    redis.call('LINSERT', queue, 'BEFORE', next, owner)
  else
    redis.call('RPUSH', queue, owner)
  end
end

-- Whether the times are those of waiters, as the first one shows. Those of a queue with a live head have been seen.
local function are_times(head)
  local first = head or redis.call('ZRANGE', timeouts, 0, 0)[1]
  return not first or is_owner(first)
end

local function stand(head)
  local before = redis.call('ZSCORE', timeouts, owner)
  if not before and not are_times(head) then refuse_type() end
  -- There are times without a list if that was evicted, for example. Waiters with a time do not join it, nor do those of Redisson. Without
  -- the times each of them joins again with its next attempt.
  if not head and redis.call('DEL', timeouts) == 1 then before = nil end
  -- The PEXPIRE comes first: it passes when memory is full, even if the key is missing, and lets the next writes pass.
  redis.call('PEXPIRE', ours, place)
  redis.call('ZADD', ours, as_score(now + tonumber(place)), owner)
  if not before then redis.call('RPUSH', queue, owner) end
  local owed, followers = owed_to_foreign()
  local dead_at = now + tonumber(place) + owed
  redis.call('ZADD', timeouts, as_score(dead_at), owner)
  local times = {}
  for _, one in ipairs(followers) do follow(one, time_of(before or dead_at), dead_at, times) end
  set_times(times)
  -- Without further waiters all three must expire. They do so together, long after any waiter counts as alive, since
  -- Redisson never moves this time. Without the times in `ours` a dead waiter would pass for a foreign one.
  local gone_at = as_score(dead_at + DAY)
  for _, key in ipairs({ queue, timeouts, ours }) do redis.call('PEXPIREAT', key, gone_at) end
end

-- How long others are in the way: the holder until its lease ends, or without a holder the first waiter until it
-- counts as dead. A waiter further behind has to wait for longer, so its answer is longer by the time for which its
-- place is kept.
local function in_the_way(is_held, head)
  local left
  if is_held then
    left = redis.call('PTTL', lock)
  else
    left = time_of(redis.call('ZSCORE', ours, head) or redis.call('ZSCORE', timeouts, head) or now) - now
    left = math.max(left, 0)
  end
  if left < 0 or redis.call('LINDEX', queue, is_held and 0 or 1) == owner then return left end
  return left + place
end

-- The answer, with the holder if there is one.
local function refused(is_held, head)
  local left = in_the_way(is_held, head)
  if not is_held then return left end
  local _, one, others = held(lock)
  return one and { left, one, others } or left
end

local has_it = redis.call('HEXISTS', lock, owner) == 1
local is_held = redis.call('EXISTS', lock) == 1
local head, any_died = sweep()
if was_dropped() then
  come_back()
  head = redis.call('LINDEX', queue, 0)
end
if has_it or not is_held and (not head or head == owner) then
  -- The PEXPIRE comes first: it passes when memory is full, and then lets the HSET pass.
  local keep = math.max(redis.call('PTTL', lock), tonumber(lease))
  redis.call('PEXPIRE', lock, keep)
  leave({ owner })
  redis.call('HSET', lock, owner, '1')
  redis.call('PEXPIRE', lock, keep)
  -- No message is sent when a lease expires. The next waiter has to know of a lease that may end before its own next
  -- attempt.
  local patience = place == '0' and PATIENCE or tonumber(place)
  local next = redis.call('LINDEX', queue, 0)
  if next and tonumber(lease) < patience then wake(next, channel) end
  return told(nil)
end
if place ~= '0' then stand(head) end
if any_died then
  if is_held then wake_before_the_end(head, channel) else wake(head, channel) end
end
return told(refused(is_held, head))
