-- What the scripts for permits have in common. Each script follows with a header of its own.
-- The free permits and the acquired ones add up to the number that was set. Whatever removes one on one side adds it
-- on the other. Without a number there is no semaphore: somebody has deleted it, and permits that are left are lost. They are
-- removed and not added, or the next number would count them.

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
  if number and not is_number(number) then error('WRONGTYPE the key holds no number') end
  return number and tonumber(number)
end

-- Members of a sorted set that are no ids of permits are data of another program. Before version 3.17 of Redisson the ids
-- were digits.
local function check_ids(members)
  for _, member in ipairs(members) do
    if #member ~= 16 and (#member ~= 32 or string.find(member, '%X')) then
      error('WRONGTYPE the key holds no permits', 0)
    end
  end
end

-- Fails if a sorted set is not that of permits, as those show that end first. So many are looked at.
local function check_permits(permits)
  check_ids(redis.call('ZRANGEBYSCORE', permits, '-inf', '+inf', 'LIMIT', '0', '16'))
end

-- One script takes back no more batches of expired permits than this. The next one goes on.
local MOST_BATCHES = 50

-- Takes back expired permits, in batches that fit on Lua's stack. Returns how many were added, and how many permits are free
-- now; nil if there is no number.
local function sweep(semaphore, permits, now)
  -- Before anything is written: this fails on a value that is not a semaphore.
  local left, swept = free(semaphore), 0
  for _ = 1, MOST_BATCHES do
    local expired = redis.call('ZRANGEBYSCORE', permits, '0', digits(math.floor(now)), 'LIMIT', '0', '1000')
    if #expired == 0 then break end
    check_ids(expired)
    local removed = redis.call('ZREM', permits, unpack(expired))
    if left then
      left = redis.call('INCRBY', semaphore, digits(removed))
      swept = swept + removed
    end
  end
  return swept, left or nil
end

-- Publishes the number of free permits. Returns how many subscribers were notified. Redisson's subscribers would fail
-- on a negative number.
local function tell(channel, number)
  if number <= 0 then return 0 end
  return publish(channel, digits(math.min(number, 2147483647)))
end

-- The id of an owner's permit, counted from 0: a UUID of version 5 over the owner's seed and that number.
local function id(seed, number)
  local digest, bytes = redis.sha1hex(seed .. digits(number)), {}
  for n = 1, 16 do bytes[n] = tonumber(string.sub(digest, 2 * n - 1, 2 * n), 16) end
  bytes[7] = bytes[7] % 16 + 80
  bytes[9] = bytes[9] % 64 + 128
  return string.char(unpack(bytes))
end

-- The end of a semaphore after one of its permits was given a lease. It lasts at least as long as the permit, also if the
-- handle that uses it would leave its end as it is.
local function used_for(lease, stays, semaphore, permits)
  used(digits(math.max(lease, tonumber(stays))), semaphore, false, permits)
end

-- Never the id of a permit, and no member of a sorted set of another program: its removal changes nothing.
local NO_PERMIT = 'distlock:none'

-- A write that changes nothing and passes when memory is full. The writes after it then pass as well.
local function begin_writing(permits) redis.call('ZREM', permits, NO_PERMIT) end

-- The answer that a request was given before, if there was one; and storing it, in case the request is sent again. Stored before
-- anything is published, which may fail in the middle of the script.
local function answered(request)
  local answer = redis.call('GET', request)
  return answer and tonumber(answer)
end
local function answer(request, number, keep)
  redis.call('SET', request, digits(number), 'PX', keep)
  return number
end

