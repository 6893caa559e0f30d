-- Tells what a waiter sees of a count-down latch. Changes nothing.
-- KEYS  1 latch (integer)   2 which opening was the last one
-- ARGV  none
-- Reply array: the count as a text, nil if there is no latch   which opening is remembered, nil if none is   how many ms the latch
-- stays unless it is used (-1 without an end, -2 there is none)
local latch, opened = KEYS[1], KEYS[2]

local count = number_of(latch)
if not count then
  local refused = refused_by_replica('HDEL', latch, '')
  if refused then return refused end
end
return { count, redis.call('GET', opened), redis.call('PTTL', latch) }
