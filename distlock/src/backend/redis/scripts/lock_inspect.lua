-- Tells who holds a lock, how often each holder has entered it, and for how long, all at one moment.
-- KEYS  1 lock (hash: owner -> count)
-- ARGV  none
-- Reply array: ms left (-1 without an end, -2 free), then owner and count of each holder
local lock = KEYS[1]

local reply = { redis.call('PTTL', lock) }
for _, owner in ipairs(redis.call('HKEYS', lock)) do
  reply[#reply + 1] = owner
  reply[#reply + 1] = redis.call('HGET', lock, owner)
end
return reply
