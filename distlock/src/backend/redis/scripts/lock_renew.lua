-- Renews locks for their owners, and states how often each has entered: where the lock is still the owner's.
-- Never creates a lock and never shortens a lease: sent twice, or late, it does no harm.
-- KEYS  1.. locks (hash: owner -> count), any number
-- ARGV  three for each lock: owner, count, lease in ms
-- Reply one integer for each lock: 1 renewed   0 not this owner's
local replies = {}
for i, lock in ipairs(KEYS) do
  local owner, count, lease = ARGV[i * 3 - 2], ARGV[i * 3 - 1], ARGV[i * 3]
  local ours = redis.pcall('HEXISTS', lock, owner)
  if type(ours) == 'table' then
    -- A value of another type is nobody's lock; what else went wrong is no answer about this lock.
    if not string.find(ours.err, 'WRONGTYPE', 1, true) then return ours end
    ours = 0
  end
  if ours == 1 then
    -- First write: passes when memory is out, and lets what follows pass; a bad lease fails before anything is stored.
    redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(lease)))
    if redis.call('HGET', lock, owner) ~= count then redis.call('HSET', lock, owner, count) end
  end
  replies[i] = ours
end
return replies
