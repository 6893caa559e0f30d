-- How a lock is acquired that is free: statements, for a `lock`, its `owner` and the `lease` in ms. They return nil if it is granted, and
-- go on with `acquire_held.lua` if the lock is not free. Each script has a header of its own.

if redis.call('EXISTS', lock) == 0 then
  local answer = redis.pcall('HSET', lock, owner, '1')
  -- Compared with 1 first, here and below: that is the usual answer, and a call of `type` costs more.
  if answer ~= 1 then
    -- The memory may be full. A PEXPIRE passes then, and lets all later HSETs of the script pass.
    redis.call('PEXPIRE', lock, lease)
    redis.call('HSET', lock, owner, '1')
  end
  answer = redis.pcall('PEXPIRE', lock, lease)
  if answer ~= 1 and type(answer) == 'table' then
    -- The lease is invalid, or the user lacks this right. A lock without an end would stay for ever.
    if type(redis.pcall('HDEL', lock, owner)) == 'table' then redis.pcall('DEL', lock) end
    -- Once more, so that its error ends the script in the words of each version.
    return redis.call('PEXPIRE', lock, lease)
  end
  return nil
end

