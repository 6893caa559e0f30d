-- What the scripts have in common that free a lock, whoever holds it. Each script follows with a header of its own.

-- Whether the key holds anything else than a lock. Only the hash of a lock is deleted: it has one field, an owner with its
-- count. A read/write lock and data of the user stay. HLEN fails on a value of another type.
local function is_no_lock(lock)
  local fields = redis.call('HLEN', lock)
  if fields ~= 1 then return fields > 1 end
  local owner = redis.call('HKEYS', lock)[1]
  return not is_owner(owner) or not string.find(redis.call('HGET', lock, owner), '^%d+$')
end

-- Whether the lock is held with another fencing token than the one that was seen. A thread of Redisson is the same owner in its
-- next hold, and each grant of a fenced lock has a token of its own. Without a text no token was seen. One that is gone tells
-- nothing.
local function has_other_token(lock, fence, seen)
  if not fence or not seen or seen == '' or redis.call('EXISTS', lock) == 0 then return false end
  local last = redis.call('GETRANGE', fence, 0, 32) -- longer than any token
  return last ~= '' and last ~= seen
end
