-- What the scripts that look at readers have in common. Each script follows with a header of its own.

-- With more readers than this, a lock keeps its TTL when one of them leaves.
local FEW = 8
-- How many ended readers one script removes at most from a lock with more readers than that.
local MOST_ENDED = 1000
-- A difference of so many ms between two TTLs is not worth a command or a message.
local SOONER = 10

-- What is left of a reader with this count, in ms; 0 or less if it has ended.
local function left_of(stem, field, count)
  local left = 0
  for hold = 1, tonumber(count) or 0 do
    left = math.max(left, redis.call('PTTL', stem .. field .. ':rwlock_timeout:' .. hold))
  end
  return left
end

-- One field of a lock, whichever; all of them on servers before version 6.2. Asking for several costs the server more, as
-- it then goes through a hash that is stored as a list.
local function some_fields(lock)
  local field = redis.pcall('HRANDFIELD', lock)
  if type(field) == 'string' then return { field } end
  if not string.find(field.err, 'nknown') then error(field.err) end
  return redis.call('HKEYS', lock)
end

-- Leaves a lock without a writer to its readers, and removes those that have ended. Without a live one the lock is
-- deleted. A few readers are all looked at, and the lock lasts until the last of them ends. Among more it is enough that
-- one is alive: then nobody looks at the others, and the lock keeps its TTL. It may be too long, and is never too short.
-- `ours`: what was left, in ms, of the reader that has just gone, if one has. If the TTL of the lock is longer it is that
-- of another one of the few, and nobody is looked at. It may be too long only when the readers have just become few.
-- Returns what is left of the lock in ms, zero if it is free, and its TTL before; nil if it kept its TTL.
local function leave_to_readers(lock, stem, ours)
  local size = redis.call('HLEN', lock)
  for _ = 1, MOST_ENDED do
    if size <= FEW + 1 then break end
    for _, field in ipairs(some_fields(lock)) do
      if field ~= 'mode' then
        if left_of(stem, field, redis.call('HGET', lock, field)) > 0 then return nil end
        redis.call('HDEL', lock, field)
      end
    end
    size = redis.call('HLEN', lock)
  end
  if size > FEW + 1 then return nil end
  local before, longest = redis.call('PTTL', lock), 0
  if size > 1 then
    if ours and size <= FEW and ours < before - SOONER then return nil end
    local fields = redis.call('HKEYS', lock)
    for i, count in ipairs(redis.call('HMGET', lock, unpack(fields))) do
      if fields[i] ~= 'mode' then
        local left = left_of(stem, fields[i], count)
        if left <= 0 then redis.call('HDEL', lock, fields[i]) end
        longest = math.max(longest, left)
      end
    end
  end
  if longest > 0 then
    redis.call('PEXPIRE', lock, longest)
  else
    redis.call('DEL', lock)
  end
  return longest, before
end

