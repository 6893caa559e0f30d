-- Tells how long the number of a semaphore or a latch stays. Its holders are unknown.
-- KEYS  1 number (integer)
-- ARGV  none
-- Reply array: ms left (-1 without an end, -2 there is none)
local number = KEYS[1]

local count = redis.call('GET', number)
-- A text that is not a number counts as another type of value: HEXISTS makes the server answer WRONGTYPE.
if count and not string.find(count, '^%-?%d+$') then redis.call('HEXISTS', number, '') end
return { redis.call('PTTL', number) }
