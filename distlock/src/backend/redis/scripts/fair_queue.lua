-- The queue of a fair lock: what stands before each script that has to do with it.
-- It is Redisson's: a list of owners in order of arrival, and a sorted set of when each counts as dead (epoch ms).
-- Redisson's waiters give no sign of life, so their times lie minutes ahead, and one that acquires or gives up takes
-- its minutes from all behind it. Ours ask often, and count as dead soon after the last time. Only a dead head goes.
-- 1. List and set have the same owners. A head without a time is dead.
-- 2. Ours have their time in a set of our own besides. Only that counts for us: dead by it they go wherever they stand,
--    alive by it they stay.
-- 3. A time of ours is how long its place is kept, and all that foreign waiters before it may still take from it. So none
--    of them makes a live one of ours look dead; and what they took lets a dead one look dead in time, to Redisson too.
--    Where that went wrong (clocks that differ, a foreign waiter with minutes of its own choice) ours comes back to the
--    front: whoever is left came later, for only heads are dropped.
-- 4. Ours take nothing from anybody: those behind them have nothing from them that adds up.
local lock, queue, timeouts, ours = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function leave(owner)
  redis.call('ZREM', timeouts, owner)
  redis.call('ZREM', ours, owner)
  redis.call('LREM', queue, 0, owner)
end

-- Drops the dead. Answers who is first then, if anyone, and whether any went.
local function sweep()
  local any = false
  local first = redis.call('ZRANGE', ours, 0, 0, 'WITHSCORES')
  while first[1] and tonumber(first[2]) <= now do
    leave(first[1])
    any = true
    first = redis.call('ZRANGE', ours, 0, 0, 'WITHSCORES')
  end
  local head = redis.call('LINDEX', queue, 0)
  while head do
    local dead_at = redis.call('ZSCORE', timeouts, head)
    if dead_at and (redis.call('ZSCORE', ours, head) or tonumber(dead_at) > now) then return head, any end
    leave(head)
    any = true
    head = redis.call('LINDEX', queue, 0)
  end
  return nil, any
end

local function wake(owner, channel)
  redis.call('PUBLISH', channel .. ':' .. owner, '0')
end
