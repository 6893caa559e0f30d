-- Gives an owner's permits back, and notifies the waiters.
-- Does no harm when it is sent twice, and never touches another owner's permits. Permits of a semaphore that was removed since
-- are not given back.
-- KEYS  1 semaphore (number of free permits)   2 permits (sorted set: id -> end in ms)   3 mark of a withdrawn owner
-- ARGV  1 seed of the ids   2 how many   3 channel   4 how long the mark is kept in ms, zero: none is left   5 how long it stays after a use in ms, zero: as before
-- Reply n >= 0 all given back, and n subscribers were notified   -1 some were not acquired, and the others were given back, or there is no number
local semaphore, permits, ended = KEYS[1], KEYS[2], KEYS[3]
local seed, many, channel, keep, stays = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]

local swept, left = sweep(semaphore, permits, clock())
begin_writing(permits)
local returned = 0
-- An attempt for a very large number was never granted, so its ids are not worth a search.
if many <= math.max(1000, redis.call('ZCARD', permits)) then
  for n = 1, many do returned = returned + redis.call('ZREM', permits, id(seed, n - 1)) end
end
if not left then returned = 0 end
if returned > 0 then
  redis.call('INCRBY', semaphore, digits(returned))
  used(stays, semaphore, false, permits)
end
if keep ~= '0' then redis.call('SET', ended, '1', 'PX', keep) end
local heard = 0
if swept + returned > 0 then heard = tell(channel, free(semaphore)) end
return told(returned < many and -1 or heard)
