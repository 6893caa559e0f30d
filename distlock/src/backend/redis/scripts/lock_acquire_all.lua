-- Acquires several locks, each for its owner, or none of them.
-- Does for each what lock_acquire does, so it has the same effect when it is sent twice.
-- KEYS  1.. locks (hash: owner -> count), any number
-- ARGV  two for each lock: owner, lease in ms
-- Reply nil granted   array: position of a lock that another owner holds, for how many ms (-1 without an end), the owner, how many others
local free = {}
for i, lock in ipairs(KEYS) do
  free[i] = redis.call('EXISTS', lock) == 0
  if not free[i] and redis.call('HEXISTS', lock, ARGV[i * 2 - 1]) == 0 then
    return { i, held(lock) }
  end
end
for i, lock in ipairs(KEYS) do
  local owner, lease = ARGV[i * 2 - 1], ARGV[i * 2]
  if not free[i] then lease = math.max(redis.call('PTTL', lock), tonumber(lease)) end
  -- First write: a PEXPIRE checks the lease even if the key is missing, and passes when memory is full.
  redis.call('PEXPIRE', lock, lease)
  redis.call('HSET', lock, owner, '1')
  if free[i] then redis.call('PEXPIRE', lock, lease) end
end
return nil
