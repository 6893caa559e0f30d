-- Tells the number of a semaphore or a latch.
-- KEYS  1 number (integer)
-- ARGV  none
-- Reply the number, 0 if there is none
local number = KEYS[1]

local count = number_of(number) or '0'
return tonumber(count)
