-- Gives one permit back, whoever has it, and notifies the waiters, once for each request. A permit of a semaphore that was
-- removed since is not given back.
-- KEYS  1 semaphore (number of free permits)   2 permits (sorted set: id -> end in ms)   3 answer of this request
-- ARGV  1 id   2 channel   3 how long the answer is kept in ms   4 how long it stays after a use in ms, zero: as before
-- Reply 1 given back   0 it was not acquired, or there is no number
local semaphore, permits, request = KEYS[1], KEYS[2], KEYS[3]
local permit, channel, keep, stays = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local before = answered(request)
if before then return before end
local swept, left = sweep(semaphore, permits, clock())
local returned = redis.call('ZREM', permits, permit)
if not left then returned = 0 end
if returned > 0 then
  redis.call('INCRBY', semaphore, '1')
  used(stays, semaphore, false, permits)
end
answer(request, returned, keep)
if swept + returned > 0 then tell(channel, free(semaphore)) end
return told(returned)
