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
-- a dead one looks dead to Redisson as well. If this fails (clocks differ, or a foreign waiter chose a longer
-- wait), our waiter returns to the front: whatever is left in the queue arrived later, since only heads are removed.
-- 4. Our waiters subtract nothing: the times behind them do not depend on theirs.
-- 5. What is removed from a key, or gets another TTL, has been seen to hold owners.
local lock, queue, timeouts, ours = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- One script removes no more dead waiters than this from each key. The next one goes on.
local MOST_DEAD = 1000

local function leave(owner)
  redis.call('ZREM', timeouts, owner)
  redis.call('ZREM', ours, owner)
  redis.call('LREM', queue, 1, owner)
end

-- Removes the dead waiters. Returns the first of the others, if there is one, and whether any were removed.
local function sweep()
  local any = false
  for _ = 1, MOST_DEAD do
    local first = redis.call('ZRANGE', ours, 0, 0, 'WITHSCORES')
    if not first[1] then break end
    if not is_owner(first[1]) then refuse_type() end
    if tonumber(first[2]) > now then break end
    leave(first[1])
    any = true
  end
  local head = redis.call('LINDEX', queue, 0)
  for _ = 1, MOST_DEAD do
    if not head then break end
    local dead_at = redis.call('ZSCORE', timeouts, head)
    if dead_at and (redis.call('ZSCORE', ours, head) or tonumber(dead_at) > now) then break end
    if not is_owner(head) then refuse_type() end
    leave(head)
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
