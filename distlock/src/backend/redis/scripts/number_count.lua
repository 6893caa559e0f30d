-- Tells the number of a semaphore or a latch.
-- KEYS  1 number (integer)
-- ARGV  none
-- Reply the number, 0 if there is none
local number = KEYS[1]

local count = redis.call('GET', number) or '0'
-- A text that is not a number counts as another type of value: HEXISTS makes the server answer WRONGTYPE.
if not string.find(count, '^%-?%d+$') then redis.call('HEXISTS', number, '') end
return tonumber(count)
