-- Ends an owner: gives its permits back, if it has taken them, and tells how many are free.
-- The mark of its end stays a while: sent twice it gives back once, and an acquisition that comes late takes nothing.
-- KEYS  1 permits (integer)   2 mark of the owner: taken, or ended
-- ARGV  1 how many, zero: none are given back   2 channel   3 how long the mark of the end is kept in ms
-- Reply n >= 0 given back, now or before, and n listeners heard of it   -1 this owner had taken nothing
local permits, mark = KEYS[1], KEYS[2]
local many, channel, kept = ARGV[1], ARGV[2], ARGV[3]

local marked = redis.call('GET', mark)
local free = redis.call('GET', permits) or '0'
-- A text that is no number is another type of value: asked for as a hash, the server says so.
if not string.find(free, '^%-?%d+$') then redis.call('HEXISTS', permits, '') end
-- First write: parses the time, and lets what follows pass when memory is out.
redis.call('PEXPIRE', mark, kept)
if marked == 'ended' then return 0 end
local gives = marked == 'taken' and many ~= '0'
if gives then free = redis.call('INCRBY', permits, many) end
redis.call('SET', mark, 'ended', 'PX', kept)
if marked ~= 'taken' then return -1 end
if not gives or free <= 0 then return 0 end
-- Redisson reads it as a number of 32 bits.
return redis.call('PUBLISH', channel, string.format('%.0f', math.min(free, 2147483647)))
