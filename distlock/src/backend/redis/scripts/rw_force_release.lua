-- Frees a lock that is held in this mode, whoever holds it: all readers, or the writer and the readers inside its hold.
-- Notifies the waiters.
-- KEYS  1 lock (hash: mode, owner -> count)   2 turn (the writer's owner, or 'readers')   3 mark: readers wait
-- Undeclared  timeout keys, <stem><owner>:rwlock_timeout:<n>: only the lock tells which there are; they have its hash tag
-- ARGV  1 mode   2 stem of the timeout keys   3 channel   4 the readers' turn in ms
-- Reply 1 freed   0 the lock was not held in this mode
local lock, turn, mark = KEYS[1], KEYS[2], KEYS[3]
local mode, stem, channel, moment = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- How many readers are looked at, and how many of their timeouts are removed. Others end by themselves.
local MOST_READERS, removable = 1000, 10000

local held = redis.call('HGET', lock, 'mode')
if not held and redis.call('EXISTS', lock) == 0 then return 0 end
if not is_lock(lock, held) then return wrong_type() end
if held ~= mode then return 0 end
local fields = some_fields(lock, MOST_READERS)
if not are_of_lock(fields) then return wrong_type() end
for _, field in ipairs(fields) do
  local last = math.min(entries(redis.call('HGET', lock, field)), removable)
  for hold = 1, last do redis.call('DEL', stem .. field .. ':rwlock_timeout:' .. hold) end
  removable = removable - math.max(last, 0)
end
redis.call('DEL', lock)
if mode == 'read' then
  redis.call('PUBLISH', channel, '0')
  return 1
end
if redis.call('DEL', mark) == 1 then
  redis.call('SET', turn, 'readers', 'PX', moment)
else
  redis.call('DEL', turn)
end
redis.call('PUBLISH', channel, '1')
return 1
