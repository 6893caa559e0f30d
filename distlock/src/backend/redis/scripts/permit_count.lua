-- Counts permits, as if the expired ones had been taken back. Only reads.
-- KEYS  1 semaphore (number of free permits)   2 permits (sorted set: id -> end in ms)
-- ARGV  none
-- Reply two integers: free permits, acquired permits
local semaphore, permits = KEYS[1], KEYS[2]

local now = digits(math.floor(clock()))
local left = free(semaphore) or 0
check_permits(permits)
return { left + redis.call('ZCOUNT', permits, '0', now), redis.call('ZCOUNT', permits, '(' .. now, '+inf') }
