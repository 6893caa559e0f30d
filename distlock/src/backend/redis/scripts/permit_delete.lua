-- Removes a semaphore with all of its permits, whoever has them.
-- KEYS  1 semaphore (number of free permits)   2 permits (sorted set: id -> end in ms)
-- ARGV  none
-- Reply 1 removed   0 there was none
local semaphore, permits = KEYS[1], KEYS[2]

-- Asking fails on values of another type, which are no semaphore and must stay.
free(semaphore)
redis.call('ZCARD', permits)
return math.min(1, redis.call('DEL', semaphore, permits))
