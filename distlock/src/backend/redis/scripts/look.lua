-- Tells what waiters see of the keys that they wait for. Only reads.
-- KEYS  1.. keys, as many as there are ARGV; then the permits (sorted set: id -> end in ms) of each expirable semaphore among them
-- ARGV  one for each key: 'free' nobody may hold it, 'read' only readers may, 'count' it is a latch, or how many permits
-- have to be free, of an expirable semaphore with a '+' before the number
-- Reply one integer for each key: -2 worth an attempt   -1 not, without an end   n >= 0 not for n ms, or the latch is at n
local replies, sets = {}, #ARGV

-- How many permits have ended that nobody has taken back. An attempt takes them back. Nil for a value of another type.
local function ended(permits)
  local time = redis.call('TIME')
  local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
  local number = redis.pcall('ZCOUNT', permits, '0', now)
  return type(number) == 'number' and number or nil
end

for i, wanted in ipairs(ARGV) do
  local key = KEYS[i]
  local left = redis.call('PTTL', key)
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
  elseif wanted == 'free' then
    -- A value of another type is for the attempt to report.
    open = open or type(redis.pcall('HEXISTS', key, '')) == 'table'
  else
    local free, more = redis.pcall('GET', key), 0
    if string.sub(wanted, 1, 1) == '+' then
      sets = sets + 1
      more = ended(KEYS[sets])
    end
    -- A number that is gone, and a value of another type, are for the attempt to report.
    open = type(free) ~= 'string' or not is_number(free) or not more or tonumber(free) + more >= tonumber(wanted)
    -- A number is not held by anybody whose lease could end.
    left = -1
  end
  replies[i] = open and -2 or math.max(left, -1)
end
return replies
