-- How a lock is acquired. Each script follows with a header of its own.

-- Acquires a lock for an owner if the lock is free or already this owner's. Returns nil if it is granted, and otherwise the
-- refusal. Sets the count to 1, adds nothing and never shortens a lease, so it has the same effect when it is called twice.
-- `checked` has the leases that were accepted for other locks by the same script; nil if there are no others.
local function acquire(lock, owner, lease, checked)
  if redis.call('EXISTS', lock) == 0 then
    -- Before the first write: a PEXPIRE checks the lease even if the key is missing, so an invalid one fails before
    -- anything is stored. It also passes when memory is full, and then lets all HSETs of the script pass.
    if not (checked and checked[lease]) then redis.call('PEXPIRE', lock, lease) end
    redis.call('HSET', lock, owner, '1')
    local answer = redis.pcall('PEXPIRE', lock, lease)
    if type(answer) == 'table' then
      -- The user has this right for other locks only. A lock without an end would stay for ever.
      redis.pcall('HDEL', lock, owner)
      -- Once more, so that its error ends the script in the words of each version.
      return redis.call('PEXPIRE', lock, lease)
    end
    if checked then checked[lease] = true end
    return nil
  end
  if redis.call('HEXISTS', lock, owner) == 0 then return refusal(lock) end
  redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(lease)))
  redis.call('HSET', lock, owner, '1')
  return nil
end

