-- Frees a lock that is held in this mode, whoever holds it or only from the owners that were seen: all readers, or the writer
-- and the readers inside its hold. Notifies the waiters.
-- KEYS  1 lock (hash: mode, owner -> count)   2 turn (the writer's owner, or 'readers')   3 mark: readers wait
-- Undeclared  timeout keys, <stem><owner>:rwlock_timeout:<n>: only the lock tells which there are; they have its hash tag
-- ARGV  1 mode, empty: any   2 stem of the timeout keys   3 channel   4 the readers' turn in ms   5.. the owners that were
--       seen, as `are_seen` has them; missing: any
-- Reply 1 freed   0 the lock was not held in this mode   -1 another owner holds it
local lock, turn, mark = KEYS[1], KEYS[2], KEYS[3]
local mode, stem, channel, moment = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- How many readers are looked at, and how many of their timeouts are removed. Others end by themselves.
local MOST_READERS, removable = 1000, 10000

-- Whether the lock has no owners but those that were seen. A reader whose timeouts have ended holds nothing any more. Those that
-- are not looked at count as holders.
local function has_only_seen(fields)
  local owners, looked_at = {}, {}
  for _, field in ipairs(fields) do
    looked_at[field] = true
    local is_alive = field ~= 'mode'
    if is_alive and not is_writer(field) then
      local left, unknown = left_of(lock, stem, field, redis.call('HGET', lock, field))
      is_alive = left > 0 or unknown
    end
    if is_alive then owners[#owners + 1] = field end
  end
  local others = redis.call('HLEN', lock) - #fields
  -- The mode is one of the fields, and no owner.
  if not looked_at['mode'] then others = others - 1 end
  looked_at['mode'] = true
  return are_seen(owners, 5, others, function(owner)
    return not looked_at[owner] and redis.call('HEXISTS', lock, owner) == 1
  end)
end

local held = redis.call('HGET', lock, 'mode')
-- Changes nothing. A master that has become a replica refuses it: the new master may have the lock.
if not held and redis.call('EXISTS', lock) == 0 then return redis.call('DEL', lock) end
if not is_lock(lock, held) then return wrong_type() end
if mode ~= '' and held ~= mode then return 0 end
local fields = some_fields(lock, MOST_READERS)
if not are_of_lock(fields) then return wrong_type() end
if ARGV[5] and not has_only_seen(fields) then return -1 end
for _, field in ipairs(fields) do
  local last = math.min(entries(redis.call('HGET', lock, field)), removable)
  for hold = 1, last do redis.call('DEL', stem .. field .. ':rwlock_timeout:' .. hold) end
  removable = removable - math.max(last, 0)
end
redis.call('DEL', lock)
if held == 'read' then
  publish(channel, '0')
  return told(1)
end
if redis.call('DEL', mark) == 1 then
  redis.call('SET', turn, 'readers', 'PX', moment)
else
  redis.call('DEL', turn)
end
publish(channel, '1')
return told(1)
