-- Sets, adds to or drains the permits of a semaphore, once for each request, and publishes how many are free if that
-- grew.
-- The answer is stored in a mark of the request. When the request is sent again, nothing changes and the answer is the
-- same. A new semaphore has no owners, whoever had permits of one that was removed. A sum beyond 32 bits changes nothing but the mark.
-- KEYS  1 permits (integer)   2 mark of the request: its answer   3 owners that have some (hash: owner -> how many)
-- ARGV  1 set, add or drain   2 how many   3 channel   4 how long the mark is kept in ms   5 how long it stays after a use in ms, zero: as before
-- Reply set: 1 done, 0 there is a number already   add: how many are free now, or would be   drain: how many were free
local permits, mark, owners = KEYS[1], KEYS[2], KEYS[3]
local change, many, channel, kept, stays = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local answered = redis.call('GET', mark)
if answered then return tonumber(answered) end
local free = number_of(permits)
if change == 'add' then
  local sum = tonumber(free or '0') + tonumber(many)
  if math.abs(sum) > 2147483647 then
    -- Also stored: a copy of the request that comes late would find another number.
    redis.call('PEXPIRE', mark, kept)
    redis.call('SET', mark, string.format('%.0f', sum), 'PX', kept)
    return sum
  end
end
-- Before the first change: a PEXPIRE checks the time even if the key is missing, passes when memory is full, and then
-- lets the other writes pass.
redis.call('PEXPIRE', mark, kept)
-- Fails on a value of another type, which is not ours.
redis.call('HLEN', owners)
if not free then redis.call('DEL', owners) end
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
used(stays, permits, not free, owners)
redis.call('SET', mark, string.format('%.0f', answer), 'PX', kept)
-- Redisson reads it as a number of 32 bits, and fails on a negative one.
if grown > 0 then publish(channel, string.format('%.0f', math.min(grown, 2147483647))) end
return told(answer)
