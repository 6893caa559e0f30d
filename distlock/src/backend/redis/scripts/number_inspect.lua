-- Tells how long the number of a semaphore or a latch stays; nobody is known to hold it.
-- KEYS  1 number (integer)
-- ARGV  none
-- Reply array: ms left (-1 no end set, -2 there is none)
local number = KEYS[1]

local count = redis.call('GET', number)
-- A text that is no number is another type of value: asked for as a hash, the server says so.
if count and not string.find(count, '^%-?%d+$') then redis.call('HEXISTS', number, '') end
return { redis.call('PTTL', number) }
