-- Ends a reader, whatever its count. Where nobody who lives is left it frees the lock; else the lock lasts as long as the
-- longest of those who read. Whoever waits is woken where the lock is free, or will be sooner than it was told: nobody
-- tells of an expiry. Readers whose timeouts have ended are dropped on the way.
-- States that the owner holds nothing: sent twice it does no harm. A writer's lease is never touched.
-- KEYS  1 lock (hash: mode, owner -> count)
-- ARGV  1 owner   2 stem of the timeout keys   3 channel
-- Reply n >= 0 ended, and n listeners heard of it   -1 this owner holds nothing, or nothing any more
local lock = KEYS[1]
local owner, stem, channel = ARGV[1], ARGV[2], ARGV[3]

-- How long a reader lives yet, in ms; 0 where it does not.
local function left_of(field)
  local left = 0
  for hold = 1, tonumber(redis.call('HGET', lock, field)) or 0 do
    left = math.max(left, redis.call('PTTL', stem .. field .. ':rwlock_timeout:' .. hold))
  end
  return left
end

local mode = redis.call('HGET', lock, 'mode')
if not mode or redis.call('HEXISTS', lock, owner) == 0 then return -1 end
local ours, heard = left_of(owner), 0
for hold = 1, tonumber(redis.call('HGET', lock, owner)) or 0 do
  redis.call('DEL', stem .. owner .. ':rwlock_timeout:' .. hold)
end
redis.call('HDEL', lock, owner)
if mode == 'read' then
  local longest = 0
  for _, field in ipairs(redis.call('HKEYS', lock)) do
    if field ~= 'mode' then
      local left = left_of(field)
      if left <= 0 then redis.call('HDEL', lock, field) end
      longest = math.max(longest, left)
    end
  end
  local before = redis.call('PTTL', lock)
  if longest > 0 then
    redis.call('PEXPIRE', lock, longest)
  else
    redis.call('DEL', lock)
  end
  if longest < before or longest <= 0 then heard = redis.call('PUBLISH', channel, '0') end
end
if ours <= 0 then return -1 end
return heard
