-- Counts permits, as if the expired ones had been taken back. Only reads.
-- KEYS  1 semaphore (number of free permits)   2 permits (sorted set: id -> end in ms)
-- ARGV  none
-- Reply two integers: free permits, acquired permits
local semaphore, permits = KEYS[1], KEYS[2]

local now = digits(math.floor(clock()))
local left = free(semaphore)
check_permits(permits)
local expired, acquired = redis.call('ZCOUNT', permits, '0', now), redis.call('ZCOUNT', permits, '(' .. now, '+inf')
-- After them: who lacks the right to count is told so also where there is nothing to count.
if not left then return { 0, 0 } end
return { left + expired, acquired }
