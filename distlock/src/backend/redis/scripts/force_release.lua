-- What the scripts have in common that free a lock, whoever holds it. Each script follows with a header of its own.

-- Whether the key holds anything else than a lock. Only the hash of a lock is deleted: it has one field, an owner with its
-- count. A read/write lock and data of the user stay. HKEYS fails on a value of another type.
local function is_no_lock(lock)
  local fields = redis.call('HKEYS', lock)
  if #fields == 0 then return false end
  local id = string.match(fields[1], '^([%x%-]+):%d+')
  local count = redis.call('HGET', lock, fields[1])
  return #fields > 1 or not id or #id ~= 36 or not string.match(count, '^%d+$')
end
local wrong_type = redis.error_reply('WRONGTYPE the key does not hold such a lock')

