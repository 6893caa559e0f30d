-- What the scripts for fair locks have in common: the queue of waiters. Each script follows with a header of its own.
-- The queue is Redisson's: a list of owners in order of arrival, and a sorted set with the time (epoch ms) from which
-- each counts as dead. Redisson's waiters give no sign of life while they wait. Their times are therefore minutes
-- ahead, and one that acquires or gives up subtracts its minutes from the times of all behind it. Our waiters repeat
-- their attempts often, and count as dead soon after the last one. Redisson removes a dead waiter only at the head of
-- the queue.
-- 1. The list and the sorted set have the same owners. A head without a time is dead.
-- 2. Our waiters have a second time in a sorted set of our own, and for our scripts only that one counts: past it a
-- waiter is removed wherever it is in the queue, before it the waiter stays.
-- 3. The time that Redisson sees of our waiter is the time for which its place is kept, plus all that the foreign
-- waiters before it may still subtract. So none of them makes a live waiter look dead, and after their subtractions
-- a dead one looks dead to Redisson as well. If this fails (clocks differ, a foreign waiter chose a longer
-- wait, or some give up by Redisson's asynchronous interface, which subtracts the longest wait for each), our waiter returns to the front: whatever is left in the queue arrived later, since only heads are removed.
-- The longest wait is not added for each of them: a dead waiter of ours would then keep the lock from Redisson for minutes more.
-- 4. A foreign waiter adds its own wait to the time of the waiter before it, and gives no sign of its own. Those right behind
-- one of ours therefore keep their distance to it: if its time changes, theirs change by as much, and if it leaves, they keep
-- their distance to the waiter before it. Otherwise what ours adds by rule 3 would stay with them, and grow with each round.
-- 5. What is removed from a key, or gets another TTL, has been seen to hold owners.
local lock, queue, timeouts, ours = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- One script removes no more dead waiters than this from each key. The next one goes on.
local MOST_DEAD = 1000

-- How many waiters, from the first one, are looked at for the times of others. Each sign of life looks at them as long as a foreign
-- waiter is in the queue, so without a bound n waiters would cost n * n. Redisson removes dead waiters at the head alone, so those
-- further behind may be looked at later, when they have come nearer.
local MOST_WAITERS = 100
local LONGEST = 315360000000 -- no wait is longer; a score of another program may be any number
local DAY = 86400000

-- The time from which a waiter counts as dead.
local function time_of(score)
  return math.min(tonumber(score), now + LONGEST)
end

local function as_score(time)
  return string.format('%.0f', time)
end

-- Whether there are others than ours in a queue with so many places. By the numbers, which n waiters can afford to compare. They may
-- agree by chance while some of ours were dropped as dead and have not come back: then nobody's time changes until their next sign.
local function has_foreign(places)
  return places > 0 and places ~= redis.call('ZCARD', ours)
end

local function is_ours(waiter) return redis.call('ZSCORE', ours, waiter) end

-- Adds the time of a foreign waiter whose leader's time changes. One that does not come after its leader's stays as it is.
local function follow(follower, from, to, times)
  local score = redis.call('ZSCORE', timeouts, follower)
  local time = score and time_of(score)
  if not time or time <= from then return time or nil end
  from = math.max(from, now - DAY)
  times[#times + 1] = { as_score(time - from + to), follower }
  return time - from + to
end

-- The time of one of ours that leaves. A dead one has no time left: those behind it get none for the time since it died, in
-- which they may have died as well.
local function time_of_leaving(owner)
  local time = time_of(redis.call('ZSCORE', timeouts, owner) or now + LONGEST)
  local dead_at = redis.call('ZSCORE', ours, owner)
  return dead_at and tonumber(dead_at) <= now and math.max(now, time) or time
end

-- The times of foreign waiters after some of ours have left (rule 4), as ZADD takes them. Scores are read only of the waiters that
-- stand right behind one that leaves.
local function times_without(leaving)
  local leaves, times = {}, {}
  for _, one in ipairs(leaving) do leaves[one] = true end
  local before, time_before, leader, time_of_leader, base = nil, nil, nil, nil, nil
  for _, one in ipairs(redis.call('LRANGE', queue, 0, MOST_WAITERS - 1)) do
    if leaves[one] then
      leader, time_of_leader = one, nil
    else
      local time = nil
      if leader and is_ours(one) then
        leader = nil
      elseif leader then
        if not time_of_leader then
          time_of_leader = time_of_leaving(leader)
          base = math.max(now, time_before or time_of(before and redis.call('ZSCORE', timeouts, before) or now))
        end
        time = follow(one, time_of_leader, base, times)
      end
      before, time_before = one, time
    end
  end
  return times
end

local function set_times(times)
  for _, one in ipairs(times) do redis.call('ZADD', timeouts, 'XX', one[1], one[2]) end
end

local function remove(owner)
  redis.call('ZREM', timeouts, owner)
  redis.call('ZREM', ours, owner)
  redis.call('LREM', queue, 1, owner)
end

-- Some of our waiters leave the queue.
local function leave(owners)
  local times = has_foreign(redis.call('LLEN', queue)) and times_without(owners) or {}
  for _, owner in ipairs(owners) do remove(owner) end
  -- Last: when memory is full a ZADD passes only behind another write.
  set_times(times)
end

-- Removes the dead waiters. Returns the first of the others, if there is one, and whether any were removed.
local function sweep()
  local dead = {}
  for at = 0, MOST_DEAD - 1 do
    local one = redis.call('ZRANGE', ours, at, at, 'WITHSCORES')
    if not one[1] then break end
    if not is_owner(one[1]) then refuse_type() end
    if tonumber(one[2]) > now then break end
    dead[#dead + 1] = one[1]
  end
  local any = #dead > 0
  if any then leave(dead) end
  local head = redis.call('LINDEX', queue, 0)
  for _ = 1, MOST_DEAD do
    if not head then break end
    local dead_at = redis.call('ZSCORE', timeouts, head)
    if dead_at and (redis.call('ZSCORE', ours, head) or tonumber(dead_at) > now) then break end
    if not is_owner(head) then refuse_type() end
    remove(head)
    any = true
    head = redis.call('LINDEX', queue, 0)
  end
  return head or nil, any
end

local function wake(owner, channel)
  publish(channel .. ':' .. owner, '0')
end

-- Notifies a waiter that was behind others and is the first one now, if the lease of the holder ends soon: as long as others were
-- before it, it was told of a later end, and no message is sent when a lease expires.
local PATIENCE = 5000 -- how long the place of one of our waiters is kept by default
local function wake_before_the_end(head, channel)
  local left = redis.call('PTTL', lock)
  if head and left >= 0 and left < PATIENCE then wake(head, channel) end
end
