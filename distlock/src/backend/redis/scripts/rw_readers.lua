-- What the scripts that look at readers have in common. Each script follows with a header of its own.

-- With more readers than this, a lock keeps its TTL when one of them leaves.
local FEW = 8
-- How many pairs of ended readers one script removes at most from a lock with more readers than that.
local MOST_PAIRS = 500

-- What is left of a reader with this count, in ms; 0 or less if it has ended.
local function left_of(stem, field, count)
  local left = 0
  for hold = 1, tonumber(count) or 0 do
    left = math.max(left, redis.call('PTTL', stem .. field .. ':rwlock_timeout:' .. hold))
  end
  return left
end

-- Two fields of a lock, whichever; all of them on servers before version 6.2.
local function some_fields(lock)
  local fields = redis.pcall('HRANDFIELD', lock, '2')
  if not fields.err then return fields end
  if not string.find(fields.err, 'nknown') then error(fields.err) end
  return redis.call('HKEYS', lock)
end

-- Leaves a lock without a writer to its readers, and removes those that have ended. Without a live one the lock is
-- deleted. A few readers are all looked at, and the lock lasts until the last of them ends. Among more it is enough that
-- one is alive: then nobody looks at the others, and the lock keeps its TTL. It may be too long, and is never too short.
-- Returns what is left of the lock in ms, zero if it is free; nil if it kept its TTL.
local function leave_to_readers(lock, stem)
  for _ = 1, MOST_PAIRS do
    if redis.call('HLEN', lock) <= FEW + 1 then break end
    for _, field in ipairs(some_fields(lock)) do
      if field ~= 'mode' then
        if left_of(stem, field, redis.call('HGET', lock, field)) > 0 then return nil end
        redis.call('HDEL', lock, field)
      end
    end
  end
  if redis.call('HLEN', lock) > FEW + 1 then return nil end
  local longest = 0
  for _, field in ipairs(redis.call('HKEYS', lock)) do
    if field ~= 'mode' then
      local left = left_of(stem, field, redis.call('HGET', lock, field))
      if left <= 0 then redis.call('HDEL', lock, field) end
      longest = math.max(longest, left)
    end
  end
  if longest > 0 then
    redis.call('PEXPIRE', lock, longest)
  else
    redis.call('DEL', lock)
  end
  return longest
end

