-- Frees a fair lock, whoever holds it, and notifies the first waiter. Notifies it even if the lock was free, since an
-- earlier message may have been lost.
-- KEYS  1 lock (hash: owner -> count)   2 queue (list)   3 timeouts (sorted set)   4 ours (sorted set)
-- ARGV  1 the lock's channel
-- Reply 1 freed   0 the lock was free
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
local freed = redis.call('DEL', lock)
local head = sweep()
if head then wake(head, channel) end
return freed
