-- What the scripts for permits have in common. Each goes on with its own header.
-- Free permits and those that are out add up to what was set; who takes from one side adds to the other.

-- The server's time in ms and parts of one: a permit whose end is not above it has expired.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + time[2] / 1000
end

-- Lua would write large numbers with an exponent.
local function digits(number) return string.format('%.0f', number) end

-- When a lease ends: in whole ms, and not before it does for its owner.
local function end_of(lease, now) return math.ceil(now + lease) end

-- How many permits are free; false where that was never set.
local function free(semaphore)
  local number = redis.call('GET', semaphore)
  if number and not string.find(number, '^-?%d+$') then error('WRONGTYPE the key holds no number') end
  return number and tonumber(number)
end

-- Takes back what has expired, in batches that fit onto Lua's stack; how many.
local function sweep(semaphore, permits, now)
  -- Before anything is written: it fails on a value that is no semaphore.
  free(semaphore)
  local swept = 0
  while true do
    local expired = redis.call('ZRANGEBYSCORE', permits, '0', digits(math.floor(now)), 'LIMIT', '0', '1000')
    if #expired == 0 then break end
    swept = swept + redis.call('ZREM', permits, unpack(expired))
  end
  if swept > 0 then redis.call('INCRBY', semaphore, digits(swept)) end
  return swept
end

-- Tells the listeners how many permits are free; how many heard of it. Redisson's would fail on a negative number.
local function tell(channel, number)
  if number <= 0 then return 0 end
  return redis.call('PUBLISH', channel, digits(math.min(number, 2147483647)))
end

-- The id of an owner's permit, counted from 0: a UUID of version 5 over its seed and that number.
local function id(seed, number)
  local digest, bytes = redis.sha1hex(seed .. digits(number)), {}
  for n = 1, 16 do bytes[n] = tonumber(string.sub(digest, 2 * n - 1, 2 * n), 16) end
  bytes[7] = bytes[7] % 16 + 80
  bytes[9] = bytes[9] % 64 + 128
  return string.char(unpack(bytes))
end

-- A write that changes nothing, and passes when memory is out: after it the others pass, too.
local function begin_writing(permits) redis.call('ZREM', permits, '') end

-- What a request was answered before, if it was; and its answer, for when it comes again.
local function answered(request)
  local answer = redis.call('GET', request)
  return answer and tonumber(answer)
end
local function answer(request, number, keep)
  redis.call('SET', request, digits(number), 'PX', keep)
  return number
end

