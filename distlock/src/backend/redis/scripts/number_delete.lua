-- Removes the number of a semaphore or a latch, and tells who waits for it.
-- KEYS  1 number (integer)
-- ARGV  1 channel   2 what to say there, nothing where it is empty
-- Reply 1 removed   0 there was none
local number = KEYS[1]
local channel, said = ARGV[1], ARGV[2]

local count = redis.call('GET', number)
if not count then return 0 end
-- A text that is no number is another type of value: asked for as a hash, the server says so.
if not string.find(count, '^%-?%d+$') then redis.call('HEXISTS', number, '') end
redis.call('DEL', number)
if said ~= '' then redis.call('PUBLISH', channel, said) end
return 1
