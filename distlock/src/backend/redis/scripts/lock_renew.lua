-- Renews locks that still are their owners', and sets how often each owner has entered its lock.
-- Never creates a lock and never shortens a lease, so it does no harm when it is sent twice or late.
-- KEYS  1.. locks (hash: owner -> count), any number
-- ARGV  three for each lock: owner, count, lease in ms
-- Reply one integer for each lock: 1 renewed   0 not this owner's
local replies = {}
for i, lock in ipairs(KEYS) do
  local owner, count, lease = ARGV[i * 3 - 2], ARGV[i * 3 - 1], ARGV[i * 3]
  local ours = redis.pcall('HEXISTS', lock, owner)
  if type(ours) == 'table' then
    -- A value of another type is not this owner's lock. Any other error says nothing about the lock, and is returned.
    if not string.find(ours.err, 'WRONGTYPE', 1, true) then return ours end
    ours = 0
  end
  if ours == 1 then
    -- First write: passes when memory is full, and lets the next ones pass. An invalid lease fails before anything is
    -- stored.
    redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(lease)))
    if redis.call('HGET', lock, owner) ~= count then redis.call('HSET', lock, owner, count) end
  end
  replies[i] = ours
end
return replies
