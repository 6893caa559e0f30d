-- Tells how long the number of a semaphore or a latch stays. Its holders are unknown.
-- KEYS  1 number (integer)
-- ARGV  none
-- Reply array: ms left (-1 without an end, -2 there is none)
local number = KEYS[1]

local count = number_of(number)
return { redis.call('PTTL', number) }
