-- Ends an owner: gives its permits back if it has taken them, and publishes how many are free.
-- A mark of the end is kept for some time. So the permits are given back once when this is sent twice, and a late
-- attempt of this owner takes none.
-- KEYS  1 permits (integer)   2 mark of the owner: taken, or ended
-- ARGV  1 how many, zero: none are given back   2 channel   3 how long the mark of the end is kept in ms
-- Reply n >= 0 given back, now or before, and n subscribers were notified   -1 this owner had taken nothing
local permits, mark = KEYS[1], KEYS[2]
local many, channel, kept = ARGV[1], ARGV[2], ARGV[3]

local marked = redis.call('GET', mark)
local free = redis.call('GET', permits) or '0'
-- A text that is not a number counts as another type of value: HEXISTS makes the server answer WRONGTYPE.
if not string.find(free, '^%-?%d+$') then redis.call('HEXISTS', permits, '') end
-- First write: checks the time, passes when memory is full, and then lets the other writes pass.
redis.call('PEXPIRE', mark, kept)
if marked == 'ended' then return 0 end
local gives = marked == 'taken' and many ~= '0'
if gives then free = redis.call('INCRBY', permits, many) end
redis.call('SET', mark, 'ended', 'PX', kept)
if marked ~= 'taken' then return -1 end
if not gives or free <= 0 then return 0 end
-- Redisson reads it as a number of 32 bits.
return redis.call('PUBLISH', channel, string.format('%.0f', math.min(free, 2147483647)))
