-- What tells our data from that of other programs. Each script follows with a header of its own.

-- Whether a text has the shape of an owner: the id of a client, a number, and what Redisson adds for its writers and its
-- transactions.
local function is_owner(text)
  local id, rest = string.match(text, '^([%x%-]+):%-?%d+(.*)$')
  return id ~= nil and #id == 36 and (rest == '' or string.find(rest, '^:[%w:%-]+$') ~= nil)
end

-- The answer where the key has data of another program, which stays as it is; and the same from inside of a function.
local OTHER_DATA = 'WRONGTYPE the key does not hold such a lock'
local function wrong_type() return redis.error_reply(OTHER_DATA) end
local function refuse_type() error(OTHER_DATA, 0) end

