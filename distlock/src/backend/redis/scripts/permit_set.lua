-- Sets or changes the number of permits of a semaphore, once for each request. A sum beyond 32 bits changes nothing but the answer of the
-- request. A new semaphore has no permits that are acquired, whoever had those of one that was removed.
-- KEYS  1 semaphore (number of free permits)   2 permits (sorted set: id -> end in ms)   3 answer of this request
-- ARGV  1 what: try, set or add   2 number   3 channel   4 how long the answer is kept in ms   5 how long it stays after a use in ms, zero: as before
-- Reply try: 1 set, 0 there is a number already   set, add: how many are free now, or would be
local semaphore, permits, request = KEYS[1], KEYS[2], KEYS[3]
local what, number, channel, keep, stays = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]

local before = answered(request)
if before then return before end
local left = free(semaphore)
check_permits(permits)
if what == 'try' and left then
  begin_writing(permits)
  used(stays, semaphore, false, permits)
  return answer(request, 0, keep)
end

local swept = 0
if left then swept = sweep(semaphore, permits, clock()) end
local change = number
if what == 'set' and left then change = number - (left + swept) - redis.call('ZCARD', permits) end
local sum = (left or 0) + swept + change
if what == 'add' and math.abs(sum) > 2147483647 then
  -- Stored as well: a copy of the request that comes late would find another number.
  begin_writing(permits)
  answer(request, sum, keep)
  if swept > 0 then tell(channel, left + swept) end
  return told(sum)
end
begin_writing(permits)
if not left then redis.call('DEL', permits) end
-- Not SET, so that the key keeps its TTL.
local is_new = not left
left = redis.call('INCRBY', semaphore, digits(change))
used(stays, semaphore, is_new, permits)
local reply = answer(request, what == 'try' and 1 or left, keep)
if swept > 0 or change > 0 then tell(channel, left) end
return told(reply)
