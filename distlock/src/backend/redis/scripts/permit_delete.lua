-- Removes a semaphore with all its permits, whoever has them.
-- KEYS  1 semaphore (number of free permits)   2 permits (sorted set: id -> end in ms)
-- ARGV  none
-- Reply 1 removed   0 there was none
local semaphore, permits = KEYS[1], KEYS[2]

-- Both fail on other data, which is not a semaphore and must not be deleted.
free(semaphore)
check_permits(permits)
return math.min(1, redis.call('DEL', semaphore, permits))
