-- Renews read and write locks that still are their owners', and sets how often each owner has entered its lock. A
-- reader whose timeouts have ended has nothing to renew. Only the owner's own timeouts are renewed.
-- Never creates a lock and never shortens a lease, so it does no harm when it is sent twice or late.
-- KEYS  1.. locks (hash: mode, owner -> count), any number
-- Undeclared  timeout keys, <stem><owner>:rwlock_timeout:<n>: only the lock tells which there are; they have its hash tag
-- ARGV  five for each lock: mode, owner, count, lease in ms, stem of the timeout keys
-- Reply the number of locks, then the positions of those that are not their owners' any more

-- Renews a reader: one timeout for each of its entries, all with the same end. If nobody can tell of one of them, the second
-- value is true, and nothing is renewed.
local function renew_reader(lock, owner, count, lease, timeouts)
  local had, left, unknown = entries(redis.call('HGET', lock, owner)), 0, nil
  -- Also those that are to be made: a node that the slot leaves would refuse them after the first write.
  for hold = 1, math.max(had, entries(count)) do
    local of_entry, is_unknown = left_of_entry(lock, timeouts .. hold)
    if hold <= had then left = math.max(left, of_entry) end
    unknown = unknown or is_unknown
  end
  if left <= 0 or unknown then return 0, unknown end
  left = math.max(left, tonumber(lease))
  -- First write: passes when memory is full, and lets the next ones pass. An invalid lease fails before anything is
  -- stored.
  redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), left))
  for hold = 1, tonumber(count) do redis.call('SET', timeouts .. hold, '1', 'PX', left) end
  for hold = tonumber(count) + 1, had do redis.call('DEL', timeouts .. hold) end
  if tostring(had) ~= count then redis.call('HSET', lock, owner, count) end
  return 1
end

local function renew_writer(lock, writer, count, lease)
  -- First write, as above.
  redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(lease)))
  if redis.call('HGET', lock, writer) ~= count then redis.call('HSET', lock, writer, count) end
  return 1
end

local reply, any_unknown = { #KEYS }, false
for i, lock in ipairs(KEYS) do
  local at = i * 5
  local mode, owner, count, lease, stem = ARGV[at - 4], ARGV[at - 3], ARGV[at - 2], ARGV[at - 1], ARGV[at]
  local field = mode == 'write' and owner .. ':write' or owner
  local ours = redis.pcall('HEXISTS', lock, field)
  if type(ours) == 'table' then
    -- A value of another type is not this owner's lock. Any other error says nothing about the lock, and is returned.
    if not string.find(ours.err, 'WRONGTYPE', 1, true) then return ours end
    ours = 0
  end
  if ours == 1 and mode == 'write' then
    ours = renew_writer(lock, field, count, lease)
  elseif ours == 1 then
    local unknown
    ours, unknown = renew_reader(lock, owner, count, lease, stem .. owner .. ':rwlock_timeout:')
    any_unknown = any_unknown or unknown
  end
  if ours == 0 then
    -- Not the field itself, which a reader whose timeouts have ended still has.
    local refused = refused_by_replica('HDEL', lock, field .. ':none')
    if refused then return refused end
    reply[#reply + 1] = i
  end
end
-- At the end: the other locks are renewed all the same.
if any_unknown then return try_again() end
return reply
