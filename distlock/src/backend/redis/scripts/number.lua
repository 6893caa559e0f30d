-- What the scripts for numbers have in common. Each script follows with a header of its own.

-- Whether a text is the number of a semaphore or a latch: an integer as Redis writes it, of so few digits that Lua counts
-- exactly. Redisson's own numbers have 32 bits.
local function is_number(text)
  return #text <= 15 and (text == '0' or string.find(text, '^%-?[1-9]%d*$') ~= nil)
end

-- Lets what is kept beside a number last as long as the number, which has so many ms left. Redisson's `addPermits` and `drainPermits` take the end
-- from a number, and leave that of what is beside it: then it stays for the longest time that can be set, 45 days.
local function last_as_long(beside, left)
  if left == -1 and redis.call('PTTL', beside) >= 0 then left = 3888000000 end
  if left > 0 then redis.call('PEXPIRE', beside, string.format('%.0f', left)) end
end

-- The end of a number after a use: so many ms from now, and never earlier than before. A number that was there without an end
-- keeps none, since it may belong to another program. What is kept beside the number always gets its end: Redisson may
-- have moved that of the number alone.
local function used(stays, key, is_new, beside)
  if stays == '0' and not beside then return end
  local left = redis.call('PTTL', key)
  if stays ~= '0' and left < tonumber(stays) and (left >= 0 or is_new) then
    redis.call('PEXPIRE', key, stays)
    left = tonumber(stays)
  end
  if beside then last_as_long(beside, left) end
end

-- The number under a key as a text, false if there is none. Another text counts as another type of value: HEXISTS makes the
-- server answer WRONGTYPE.
local function number_of(key)
  local text = redis.call('GET', key)
  if text and not is_number(text) then redis.call('HEXISTS', key, '') end
  return text
end

