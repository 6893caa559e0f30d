-- Sets, adds to or drains the permits of a semaphore, once for each request, and tells how many are free where that grew.
-- The answer is kept in a mark of the request's own: sent twice it changes nothing, and answers the same.
-- KEYS  1 permits (integer)   2 mark of the request: its answer
-- ARGV  1 set, add or drain   2 how many   3 channel   4 how long the mark is kept in ms
-- Reply set: 1 done, 0 there is a number already   add: how many there are now   drain: how many there were
local permits, mark = KEYS[1], KEYS[2]
local change, many, channel, kept = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local answered = redis.call('GET', mark)
if answered then return tonumber(answered) end
local free = redis.call('GET', permits)
-- A text that is no number is another type of value: asked for as a hash, the server says so.
if free and not string.find(free, '^%-?%d+$') then redis.call('HEXISTS', permits, '') end
-- Before the first change: it parses the time also where the key is missing, and after it the others pass also when
-- memory is out.
redis.call('PEXPIRE', mark, kept)
local answer, grown = 0, 0
if change == 'set' then
  if not free then
    redis.call('SET', permits, many)
    answer, grown = 1, tonumber(many)
  end
elseif change == 'add' then
  answer = redis.call('INCRBY', permits, many)
  if tonumber(many) > 0 then grown = answer end
elseif free then
  answer = tonumber(free)
  redis.call('SET', permits, '0', 'KEEPTTL')
end
redis.call('SET', mark, string.format('%.0f', answer), 'PX', kept)
-- Redisson reads it as a number of 32 bits, and cannot bear one below 0.
if grown > 0 then redis.call('PUBLISH', channel, string.format('%.0f', math.min(grown, 2147483647))) end
return answer
