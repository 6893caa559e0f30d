-- Takes several locks, each for its owner and once, or none of them.
-- Each as lock_acquire does it: sent twice it leaves what it left once.
-- KEYS  1.. locks (hash: owner -> count), any number
-- ARGV  two for each lock: owner, lease in ms
-- Reply nil granted   array: which lock is held by another, and for how many ms (-1 no end set)
for i, lock in ipairs(KEYS) do
  local owner = ARGV[i * 2 - 1]
  if redis.call('HEXISTS', lock, owner) == 0 and redis.call('EXISTS', lock) == 1 then
    return { i, redis.call('PTTL', lock) }
  end
end
for i, lock in ipairs(KEYS) do
  local owner, lease = ARGV[i * 2 - 1], ARGV[i * 2]
  -- First write: it parses the lease also where the key is missing, and passes when memory is out.
  redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(lease)))
  redis.call('HSET', lock, owner, '1')
  redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(lease)))
end
return nil
