-- Tells what waiters see of the keys that they wait for. Only reads.
-- KEYS  1.. keys, any number
-- ARGV  one for each key: 'free' nobody may hold it, 'read' only readers may, 'count' it is a latch, or how many permits
-- have to be free
-- Reply one integer for each key: -2 worth an attempt   -1 not, without an end   n >= 0 not for n ms, or the latch is at n
local replies = {}
for i, key in ipairs(KEYS) do
  local wanted, left = ARGV[i], redis.call('PTTL', key)
  local open = left == -2
  if wanted == 'read' then
    local mode = redis.pcall('HGET', key, 'mode')
    -- A value of another type is for the attempt to report.
    open = open or mode == 'read' or type(mode) == 'table'
  elseif wanted == 'count' then
    local count = redis.pcall('GET', key)
    -- A latch that is gone, and a value of another type, are for the waiter's own read to report.
    left = type(count) == 'string' and is_number(count) and tonumber(count) or 0
    open = left <= 0
  elseif wanted ~= 'free' then
    local free = redis.pcall('GET', key)
    -- A number that is gone, and a value of another type, are for the attempt to report.
    open = not free or type(free) == 'table' or not is_number(free) or tonumber(free) >= tonumber(wanted)
    -- A number is not held by anybody whose lease could end.
    left = -1
  end
  replies[i] = open and -2 or math.max(left, -1)
end
return replies
