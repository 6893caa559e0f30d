-- Takes permits for an owner, once, where enough are free.
-- A mark of our own says which owners have taken theirs: sent twice it takes them once, and after the owner's end it
-- takes none.
-- KEYS  1 permits (integer)   2 mark of the owner: taken, or ended
-- ARGV  1 how many   2 how long the mark of those taken is kept in ms
-- Reply nil granted   -1 not enough are free, or the owner has ended
local permits, mark = KEYS[1], KEYS[2]
local wanted, kept = ARGV[1], ARGV[2]

local marked = redis.call('GET', mark)
if marked == 'taken' then return nil end
local free = redis.call('GET', permits) or '0'
-- A text that is no number is another type of value: asked for as a hash, the server says so.
if not string.find(free, '^%-?%d+$') then redis.call('HEXISTS', permits, '') end
if marked or tonumber(free) < tonumber(wanted) then return -1 end
-- Before the first change: it parses the time also where the key is missing, and after it the others pass also when
-- memory is out.
redis.call('PEXPIRE', mark, kept)
redis.call('INCRBY', permits, '-' .. wanted)
redis.call('SET', mark, 'taken', 'PX', kept)
return nil
