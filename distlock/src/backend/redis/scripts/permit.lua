-- What the scripts for permits have in common. Each script follows with a header of its own.
-- The free permits and the acquired ones add up to the number that was set. Whatever removes one on one side adds it
-- on the other.

-- The server's time in ms, with fractions. A permit has expired if its end is not above this time.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + time[2] / 1000
end

-- A number as text. Lua would write large ones with an exponent.
local function digits(number) return string.format('%.0f', number) end

-- The end of a lease in whole ms, rounded up: it must not end here before it ends for its owner.
local function end_of(lease, now) return math.ceil(now + lease) end

-- The number of free permits; false if it was never set.
local function free(semaphore)
  local number = redis.call('GET', semaphore)
  if number and not string.find(number, '^-?%d+$') then error('WRONGTYPE the key holds no number') end
  return number and tonumber(number)
end

-- Takes back the expired permits, in batches that fit on Lua's stack. Returns how many there were.
local function sweep(semaphore, permits, now)
  -- Before anything is written: this fails on a value that is not a semaphore.
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

-- Publishes the number of free permits. Returns how many subscribers were notified. Redisson's subscribers would fail
-- on a negative number.
local function tell(channel, number)
  if number <= 0 then return 0 end
  return redis.call('PUBLISH', channel, digits(math.min(number, 2147483647)))
end

-- The id of an owner's permit, counted from 0: a UUID of version 5 over the owner's seed and that number.
local function id(seed, number)
  local digest, bytes = redis.sha1hex(seed .. digits(number)), {}
  for n = 1, 16 do bytes[n] = tonumber(string.sub(digest, 2 * n - 1, 2 * n), 16) end
  bytes[7] = bytes[7] % 16 + 80
  bytes[9] = bytes[9] % 64 + 128
  return string.char(unpack(bytes))
end

-- A write that changes nothing and passes when memory is full. The writes after it then pass as well.
local function begin_writing(permits) redis.call('ZREM', permits, '') end

-- The answer that a request was given before, if there was one; and storing it, in case the request is sent again.
local function answered(request)
  local answer = redis.call('GET', request)
  return answer and tonumber(answer)
end
local function answer(request, number, keep)
  redis.call('SET', request, digits(number), 'PX', keep)
  return number
end

