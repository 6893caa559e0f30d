-- Ends a reader, whatever its count. Without another live reader the lock is freed; otherwise it lasts until the last
-- of them ends. Notifies the waiters if the lock is free now, or will be earlier than they were answered, since no
-- message is sent when a lease expires. Removes readers whose timeouts have ended, as far as it comes across them.
-- Does no harm when it is sent twice. A writer's lease is never touched.
-- KEYS  1 lock (hash: mode, owner -> count)
-- ARGV  1 owner   2 stem of the timeout keys   3 channel
-- Reply n >= 0 ended, and n subscribers were notified   -1 this owner holds nothing, or its lease had ended
local lock = KEYS[1]
local owner, stem, channel = ARGV[1], ARGV[2], ARGV[3]
local SOONER = 10 -- ms; a smaller difference is not worth a message

-- What is left of a reader with this count, in ms; 0 or less if it has ended.
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
  -- The newest first: the lock nearly always lasts as long as that one, and then the others need not be checked.
  local at = #fields
  while at > 0 and (longest <= 0 or longest < whole) do
    ask(fields[at])
    at = at - 1
  end
  -- Two of the oldest in any case: otherwise ended readers would pile up while new ones come and go.
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
