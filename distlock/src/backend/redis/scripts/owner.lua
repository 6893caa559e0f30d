-- What tells our data from that of other programs. Each script follows with a header of its own.

-- Whether a text has the shape of an owner: the id of a client, a number, and what Redisson adds for its writers and its
-- transactions.
local function is_owner(text)
  local id, rest = string.match(text, '^([%x%-]+):%-?%d+(.*)$')
  return id ~= nil and #id == 36 and (rest == '' or string.find(rest, '^:[%w:%-]+$') ~= nil)
end

-- The answer where the key has data of another program, which stays as it is.
local function wrong_type() return redis.error_reply('WRONGTYPE the key does not hold such a lock') end

