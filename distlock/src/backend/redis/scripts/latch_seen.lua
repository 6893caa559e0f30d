-- Tells what a waiter sees of a count-down latch. Only reads.
-- KEYS  1 latch (integer)   2 which opening was the last one
-- ARGV  none
-- Reply array: the count as a text, nil if there is no latch   which opening is remembered, nil if none is
local latch, opened = KEYS[1], KEYS[2]

local count = redis.call('GET', latch)
-- A text that is not a number counts as another type of value: HEXISTS makes the server answer WRONGTYPE.
if count and not string.find(count, '^%-?%d+$') then redis.call('HEXISTS', latch, '') end
return { count, redis.call('GET', opened) }
