-- What the scripts for numbers have in common. Each script follows with a header of its own.

-- Whether a text is the number of a semaphore or a latch: an integer as Redis writes it, of so few digits that Lua counts
-- exactly. Redisson's own numbers have 32 bits.
local function is_number(text)
  return #text <= 15 and (text == '0' or string.find(text, '^%-?[1-9]%d*$') ~= nil)
end

-- The end of a number after a use, and of what is kept beside it: so many ms from now, and never earlier than before. A number
-- that was there without an end keeps none, since it may belong to another program.
local function used(stays, key, is_new, beside)
  if stays == '0' then return end
  local left = redis.call('PTTL', key)
  if left >= tonumber(stays) or left < 0 and not is_new then return end
  redis.call('PEXPIRE', key, stays)
  if beside then redis.call('PEXPIRE', beside, stays) end
end

-- Lets what is kept beside a number last at least as long as the number. Redisson's `addPermits` and `drainPermits` take the end
-- from a number, and leave that of the list beside it: then it stays for the longest time that can be set, 45 days.
local function last_as_long(beside, number)
  local left = redis.call('PTTL', number)
  if left < 0 and redis.call('PTTL', beside) >= 0 then left = 3888000000 end
  if left > 0 then redis.call('PEXPIRE', beside, string.format('%.0f', left)) end
end

-- The number under a key as a text, false if there is none. Another text counts as another type of value: HEXISTS makes the
-- server answer WRONGTYPE.
local function number_of(key)
  local text = redis.call('GET', key)
  if text and not is_number(text) then redis.call('HEXISTS', key, '') end
  return text
end

