-- Gives one permit a new lease from now on, shorter or longer, once for each request.
-- KEYS  1 semaphore (number of free permits)   2 permits (sorted set: id -> end in ms)   3 answer of this request
-- ARGV  1 id   2 lease in ms   3 channel   4 how long the answer is kept in ms   5 how long it stays after a use in ms, zero: as before
-- Reply 1 it has the new lease   0 it was not acquired, or there is no number
local semaphore, permits, request = KEYS[1], KEYS[2], KEYS[3]
local permit, lease, channel, keep, stays = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]

local before = answered(request)
if before then return before end
local now = clock()
local expires = end_of(lease, now)
local swept, left = sweep(semaphore, permits, now)
begin_writing(permits)
local score = left and redis.call('ZSCORE', permits, permit)
if score then
  redis.call('ZADD', permits, 'XX', digits(expires), permit)
  used_for(lease, stays, semaphore, permits)
end
local reply = answer(request, score and 1 or 0, keep)
if score and expires < tonumber(score) then
  -- A waiter that sleeps until the next permit ends might sleep too long now. Redisson's waiters ignore a 0.
  publish(channel, digits(math.min(math.max(free(semaphore) or 0, 0), 2147483647)))
elseif swept > 0 then
  tell(channel, free(semaphore))
end
return told(reply)
