-- Acquires several locks, each for its owner, or none of them.
-- Does for each what lock_acquire does, so it has the same effect when it is sent twice.
-- KEYS  1.. locks (hash: owner -> count), any number
-- ARGV  two for each lock: owner, lease in ms
-- Reply nil granted   array: position of a lock that another owner holds, and for how many ms (-1 without an end)
for i, lock in ipairs(KEYS) do
  local owner = ARGV[i * 2 - 1]
  if redis.call('HEXISTS', lock, owner) == 0 and redis.call('EXISTS', lock) == 1 then
    return { i, redis.call('PTTL', lock) }
  end
end
for i, lock in ipairs(KEYS) do
  local owner, lease = ARGV[i * 2 - 1], ARGV[i * 2]
  -- First write: a PEXPIRE checks the lease even if the key is missing, and passes when memory is full.
  redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(lease)))
  redis.call('HSET', lock, owner, '1')
  redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(lease)))
end
return nil
