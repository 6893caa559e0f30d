-- Sets a count-down latch, or counts it down by one, once for each request. At 0 the latch is removed and its waiters
-- are notified. One that hears no message finds a mark of the opening for a while.
-- The answer is stored in a mark of the request. When the request is sent again, nothing changes and the answer is the
-- same.
-- KEYS  1 latch (integer)   2 mark of the request: its answer   3 which opening was the last one
-- ARGV  1 set, or down   2 the count to set   3 channel   4 how long the mark is kept in ms   5 how long the opening is remembered in ms   6 how long it stays after a use in ms, zero: as before
-- Reply set: 1 done, 0 there is a latch already   down: the count that is left
local latch, mark, opened = KEYS[1], KEYS[2], KEYS[3]
local change, count, channel, kept, remembered, stays = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local answered = redis.call('GET', mark)
if answered then return tonumber(answered) end
local left = number_of(latch)
-- Before the first change: a PEXPIRE checks the time even if the key is missing, passes when memory is full, and then
-- lets the other writes pass.
redis.call('PEXPIRE', mark, kept)
local answer, news = 0, nil
if change == 'set' then
  if not left then
    -- The next opening is another one.
    redis.call('DEL', opened)
    redis.call('SET', latch, count)
    used(stays, latch, true)
    answer, news = 1, '1'
  end
elseif left then
  local now = redis.call('INCRBY', latch, -1)
  if now <= 0 then redis.call('DEL', latch) else used(stays, latch) end
  if now == 0 then
    -- The name of the request's mark: no other opening has it.
    redis.call('SET', opened, mark, 'PX', remembered)
    news = '0'
  end
  answer = math.max(now, 0)
end
redis.call('SET', mark, string.format('%.0f', answer), 'PX', kept)
if news then publish(channel, news) end
return told(answer)
