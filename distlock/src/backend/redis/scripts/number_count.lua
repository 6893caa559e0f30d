-- Tells the number of a semaphore or a latch.
-- KEYS  1 number (integer)
-- ARGV  none
-- Reply the number, 0 where there is none
local number = KEYS[1]

local count = redis.call('GET', number) or '0'
-- A text that is no number is another type of value: asked for as a hash, the server says so.
if not string.find(count, '^%-?%d+$') then redis.call('HEXISTS', number, '') end
return tonumber(count)
