-- Ends a writer, whatever its count, or gives up the turn of a waiting one. If readers nested in the writer's hold are
-- left, the lock is theirs until the last of them ends; otherwise it is free. Notifies all waiters. Refused readers
-- get their turn for a moment, in which none of our waiting writers is granted.
-- Does no harm when it is sent twice, and never touches another owner's hold.
-- KEYS  1 lock (hash: mode, owner -> count)   2 turn (the writer's owner, or 'readers')   3 mark: readers wait
-- ARGV  1 owner   2 stem of the timeout keys   3 channel   4 the readers' turn in ms
-- Reply n >= 0 ended, and n subscribers were notified   -1 this owner holds nothing
local lock, turn, mark = KEYS[1], KEYS[2], KEYS[3]
local owner, stem, channel, moment = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local writer = owner .. ':write'

-- What is left of a reader, in ms; 0 or less if it has ended.
local function left_of(field)
  local left = 0
  for hold = 1, tonumber(redis.call('HGET', lock, field)) or 0 do
    left = math.max(left, redis.call('PTTL', stem .. field .. ':rwlock_timeout:' .. hold))
  end
  return left
end

if redis.call('HEXISTS', lock, writer) == 0 then
  if redis.call('GET', turn) == owner then
    redis.call('DEL', turn, mark)
    redis.call('PUBLISH', channel, '1')
  end
  return -1
end
redis.call('HDEL', lock, writer)
local longest = 0
for _, field in ipairs(redis.call('HKEYS', lock)) do
  if field ~= 'mode' then
    local left = left_of(field)
    if left <= 0 then redis.call('HDEL', lock, field) end
    longest = math.max(longest, left)
  end
end
if longest > 0 then
  redis.call('HSET', lock, 'mode', 'read')
  redis.call('PEXPIRE', lock, longest)
else
  redis.call('DEL', lock)
end
if redis.call('DEL', mark) == 1 then
  redis.call('SET', turn, 'readers', 'PX', moment)
else
  redis.call('DEL', turn)
end
return redis.call('PUBLISH', channel, '1')
