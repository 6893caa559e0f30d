-- Frees a lock, whoever holds it, and notifies its waiters.
-- KEYS  1 lock (hash: owner -> count)
-- ARGV  1 channel
-- Reply 1 freed   0 the lock was free
local lock = KEYS[1]
local channel = ARGV[1]

-- Only the hash of a lock is deleted: it has one field, an owner with its count. A read/write lock and data of the user
-- stay. HKEYS fails on a value of another type.
local fields = redis.call('HKEYS', lock)
if #fields > 0 then
  local id = string.match(fields[1], '^([%x%-]+):%d+')
  local count = redis.call('HGET', lock, fields[1])
  if #fields > 1 or not id or #id ~= 36 or not string.match(count, '^%d+$') then
    return redis.error_reply('WRONGTYPE the key does not hold such a lock')
  end
end
if redis.call('DEL', lock) == 0 then return 0 end
redis.call('PUBLISH', channel, '0')
return 1
