-- How several locks are acquired, all or none. Each script follows with a header of its own.

-- Acquires this many locks, from this position of KEYS on, each for its owner, or none of them, as `acquire` does with one. From `at`
-- on, ARGV has two for each lock: owner, lease in ms. Returns nil if they are granted, and otherwise: the position, from 1
-- on, of a lock that another owner holds, for how many ms, and the owner. Of a key with a value of another type it returns the
-- position alone.
-- `checked` has the leases that were accepted by the same script.
local function acquire_all(from, many, at, checked)
  local free = {}
  for i = 0, many - 1 do
    local lock = KEYS[from + i]
    free[i] = redis.call('EXISTS', lock) == 0
    if not free[i] then
      local is_owners = redis.pcall('HEXISTS', lock, ARGV[at + i * 2])
      if is_owners == 0 then return { i + 1, held(lock) } end
      if is_owners ~= 1 then
        -- The error would not say which of the keys it is about.
        if string.find(is_owners.err, 'WRONGTYPE', 1, true) then return { i + 1 } end
        -- Once more, so that its error ends the script in the words of each version.
        return redis.call('HEXISTS', lock, ARGV[at + i * 2])
      end
    end
  end
  for i = 0, many - 1 do
    local lock, owner, lease = KEYS[from + i], ARGV[at + i * 2], ARGV[at + i * 2 + 1]
    if not free[i] then lease = math.max(redis.call('PTTL', lock), tonumber(lease)) end
    -- Both commands answer 0 or 1, and an error is neither.
    local answer = free[i] and checked[lease] and 1 or redis.pcall('PEXPIRE', lock, lease)
    local has_lease = answer == 0 or answer == 1
    if has_lease then answer = redis.pcall('HSET', lock, owner, '1') end
    local has_owner = has_lease and (answer == 0 or answer == 1)
    if has_owner and free[i] then answer = redis.pcall('PEXPIRE', lock, lease) end
    if answer ~= 0 and answer ~= 1 then
      -- None of them is granted.
      for before = 0, i do
        if free[before] then redis.pcall('HDEL', KEYS[from + before], ARGV[at + before * 2]) end
      end
      -- The refused command once more, so that its error ends the script in the words of each version.
      if has_lease and not has_owner then return redis.call('HSET', lock, owner, '1') end
      return redis.call('PEXPIRE', lock, lease)
    end
    checked[lease] = true
  end
  return nil
end

