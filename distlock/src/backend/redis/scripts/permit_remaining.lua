-- Tells what is left of the lease of one permit. Only reads.
-- KEYS  1 permits (sorted set: id -> end in ms)
-- ARGV  1 id
-- Reply n >= 0 ms left   -1 it never ends   -2 it is not acquired
local permits, permit = KEYS[1], ARGV[1]

local score = redis.call('ZSCORE', permits, permit)
if score == '922337203685477' then return -1 end
local left = (score or 0) - clock()
if left <= 0 then return -2 end
return math.floor(left)
