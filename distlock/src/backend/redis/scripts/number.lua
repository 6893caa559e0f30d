-- What the scripts for numbers have in common. Each script follows with a header of its own.

-- Whether a text is the number of a semaphore or a latch: an integer as Redis writes it, of so few digits that Lua counts
-- exactly. Redisson's own numbers have 32 bits.
local function is_number(text)
  return #text <= 15 and (text == '0' or string.find(text, '^%-?[1-9]%d*$') ~= nil)
end

-- The number under a key as a text, false if there is none. Another text counts as another type of value: HEXISTS makes the
-- server answer WRONGTYPE.
local function number_of(key)
  local text = redis.call('GET', key)
  if text and not is_number(text) then redis.call('HEXISTS', key, '') end
  return text
end

