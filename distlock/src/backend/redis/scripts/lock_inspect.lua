-- Tells who holds a lock, how often each holder has entered it, and for how long, all at one moment.
-- A hash with more fields, or with values that are no counts, is data of another program, or a read/write lock with many
-- readers.
-- KEYS  1 lock (hash: owner -> count)
-- ARGV  none
-- Reply array: ms left (-1 without an end, -2 free), then owner and count of each holder
local lock = KEYS[1]
local MOST_FIELDS = 16

if redis.call('HLEN', lock) > MOST_FIELDS then return wrong_type() end
local reply = { redis.call('PTTL', lock) }
for _, owner in ipairs(redis.call('HKEYS', lock)) do
  local count = redis.call('HGET', lock, owner)
  if owner ~= 'mode' and (#count > 19 or not string.find(count, '^%d+$')) then return wrong_type() end
  reply[#reply + 1] = owner
  reply[#reply + 1] = count
end
return reply
