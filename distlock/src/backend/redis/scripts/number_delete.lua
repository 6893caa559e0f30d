-- Removes the number of a semaphore or a latch, and publishes a message about it.
-- KEYS  1.. number (integer), and what is kept beside it
-- ARGV  1 channel   2 message, empty: none is published
-- Reply 1 removed   0 there was none
local number = KEYS[1]
local channel, said = ARGV[1], ARGV[2]

local count = number_of(number)
-- Fails on a value of another type, which is not ours.
for at = 2, #KEYS do redis.call('HLEN', KEYS[at]) end
redis.call('DEL', unpack(KEYS))
if not count then return 0 end
if said ~= '' then redis.call('PUBLISH', channel, said) end
return 1
