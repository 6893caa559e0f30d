-- Gives an owner's permits back, and wakes who waits for some.
-- States that the owner has none: sent twice it does no harm, and never touches another owner's.
-- KEYS  1 semaphore (number of free permits)   2 permits (sorted set: id -> end in ms)   3 mark of an ended owner
-- ARGV  1 seed of the ids   2 how many   3 channel   4 how long the mark is kept in ms, zero: none is made
-- Reply n >= 0 all given back, n listeners heard of it   -1 some had gone before; the others were given back
local semaphore, permits, ended = KEYS[1], KEYS[2], KEYS[3]
local seed, many, channel, keep = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local swept = sweep(semaphore, permits, clock())
begin_writing(permits)
local returned = 0
-- Of thousands that were never granted, none is looked for.
if many <= math.max(1000, redis.call('ZCARD', permits)) then
  for n = 1, many do returned = returned + redis.call('ZREM', permits, id(seed, n - 1)) end
end
if returned > 0 then redis.call('INCRBY', semaphore, digits(returned)) end
if keep ~= '0' then redis.call('SET', ended, '1', 'PX', keep) end
local heard = 0
if swept + returned > 0 then heard = tell(channel, free(semaphore)) end
if returned < many then return -1 end
return heard
