-- Tells what is left of the lease of one permit. Only reads.
-- KEYS  1 semaphore (number of free permits)   2 permits (sorted set: id -> end in ms)
-- ARGV  1 id
-- Reply n >= 0 ms left   -1 it never ends   -2 it is not acquired, or there is no number
local semaphore, permits, permit = KEYS[1], KEYS[2], ARGV[1]

if not free(semaphore) then return -2 end
local score = redis.call('ZSCORE', permits, permit)
if score == '922337203685477' then return -1 end
local left = (score or 0) - clock()
if left <= 0 then return -2 end
return math.floor(left)
