-- Sets a count-down latch, or counts it down by one, once for each request. At 0 the latch goes, and who waits is told.
-- The answer is kept in a mark of the request's own: sent twice it changes nothing, and answers the same.
-- KEYS  1 latch (integer)   2 mark of the request: its answer
-- ARGV  1 set, or down   2 the count to set   3 channel   4 how long the mark is kept in ms
-- Reply set: 1 done, 0 there is a latch already   down: what is left
local latch, mark = KEYS[1], KEYS[2]
local change, count, channel, kept = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local answered = redis.call('GET', mark)
if answered then return tonumber(answered) end
local left = redis.call('GET', latch)
-- A text that is no number is another type of value: asked for as a hash, the server says so.
if left and not string.find(left, '^%-?%d+$') then redis.call('HEXISTS', latch, '') end
-- Before the first change: it parses the time also where the key is missing, and after it the others pass also when
-- memory is out.
redis.call('PEXPIRE', mark, kept)
local answer, told = 0, nil
if change == 'set' then
  if not left then
    redis.call('SET', latch, count)
    answer, told = 1, '1'
  end
elseif left then
  local now = redis.call('INCRBY', latch, -1)
  if now <= 0 then redis.call('DEL', latch) end
  if now == 0 then told = '0' end
  answer = math.max(now, 0)
end
redis.call('SET', mark, string.format('%.0f', answer), 'PX', kept)
if told then redis.call('PUBLISH', channel, told) end
return answer
