-- Ends a reader, whatever its count. Where nobody who lives is left it frees the lock; else the lock lasts as long as the
-- longest of those who read. Whoever waits is woken where the lock is free, or will be sooner than it was told: nobody
-- tells of an expiry. Readers whose timeouts have ended are dropped where met.
-- States that the owner holds nothing: sent twice it does no harm. A writer's lease is never touched.
-- KEYS  1 lock (hash: mode, owner -> count)
-- ARGV  1 owner   2 stem of the timeout keys   3 channel
-- Reply n >= 0 ended, and n listeners heard of it   -1 this owner holds nothing, or nothing any more
local lock = KEYS[1]
local owner, stem, channel = ARGV[1], ARGV[2], ARGV[3]
local SOONER = 10 -- ms; by less it is not worth a message

-- How long a reader of so many holds lives yet, in ms; 0 where it does not.
local function left_of(field, count)
  local left = 0
  for hold = 1, tonumber(count) or 0 do
    left = math.max(left, redis.call('PTTL', stem .. field .. ':rwlock_timeout:' .. hold))
  end
  return left
end

local mode, count = redis.call('HGET', lock, 'mode'), redis.call('HGET', lock, owner)
if not mode or not count then return -1 end
local ours, heard = left_of(owner, count), 0
for hold = 1, tonumber(count) or 0 do
  redis.call('DEL', stem .. owner .. ':rwlock_timeout:' .. hold)
end
redis.call('HDEL', lock, owner)
if mode == 'read' then
  local fields = redis.call('HKEYS', lock)
  local whole, longest = redis.call('PTTL', lock), 0
  if whole < 0 then whole = math.huge end
  local function ask(field)
    if field == 'mode' then return end
    local left = left_of(field, redis.call('HGET', lock, field))
    if left <= 0 then redis.call('HDEL', lock, field) end
    longest = math.max(longest, left)
  end
  -- The newest first: nearly always the lock lasts as long as that one does, and then the others need not be asked.
  local at = #fields
  while at > 0 and (longest <= 0 or longest < whole) do
    ask(fields[at])
    at = at - 1
  end
  -- The oldest in any case, or the dead would heap up under those who come and go.
  for first = 1, math.min(at, 2) do ask(fields[first]) end
  if longest <= 0 then
    redis.call('DEL', lock)
  elseif longest ~= whole then
    redis.call('PEXPIRE', lock, longest)
  end
  if longest <= 0 or longest < whole - SOONER then heard = redis.call('PUBLISH', channel, '0') end
end
if ours <= 0 then return -1 end
return heard
