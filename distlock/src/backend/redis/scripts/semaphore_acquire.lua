-- Acquires permits for an owner if enough are free.
-- A mark records which owners have taken theirs, or have ended. So the permits are taken once when this is sent twice,
-- and an owner that has ended takes none.
-- KEYS  1 permits (integer)   2 mark of the owner: taken, or ended
-- ARGV  1 how many   2 how long the mark of those taken is kept in ms
-- Reply nil granted   -1 not enough are free, or the owner has ended
local permits, mark = KEYS[1], KEYS[2]
local wanted, kept = ARGV[1], ARGV[2]

local marked = redis.call('GET', mark)
if marked == 'taken' then return nil end
local free = redis.call('GET', permits) or '0'
-- A text that is not a number counts as another type of value: HEXISTS makes the server answer WRONGTYPE.
if not string.find(free, '^%-?%d+$') then redis.call('HEXISTS', permits, '') end
if marked or tonumber(free) < tonumber(wanted) then return -1 end
-- Before the first change: a PEXPIRE checks the time even if the key is missing, passes when memory is full, and then
-- lets the other writes pass.
redis.call('PEXPIRE', mark, kept)
redis.call('INCRBY', permits, '-' .. wanted)
redis.call('SET', mark, 'taken', 'PX', kept)
return nil
