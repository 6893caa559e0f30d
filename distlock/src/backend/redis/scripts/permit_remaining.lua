-- Tells how long one permit has left. Only reads.
-- KEYS  1 permits (sorted set: id -> end in ms)
-- ARGV  1 id
-- Reply n >= 0 ms left   -1 it has no end   -2 it has gone
local permits, permit = KEYS[1], ARGV[1]

local score = redis.call('ZSCORE', permits, permit)
if score == '922337203685477' then return -1 end
local left = (score or 0) - clock()
if left <= 0 then return -2 end
return math.floor(left)
