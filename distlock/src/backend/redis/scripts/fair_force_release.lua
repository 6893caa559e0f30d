-- Frees a fair lock, whoever holds it, and notifies the first waiter. Notifies it even if the lock was free, since an
-- earlier message may have been lost.
-- KEYS  1 lock (hash: owner -> count)   2 queue (list)   3 timeouts (sorted set)   4 ours (sorted set)
-- ARGV  1 the lock's channel
-- Reply 1 freed   0 the lock was free
local channel = ARGV[1]

if is_no_lock(lock) then return wrong_type() end
local head = sweep()
local freed = redis.call('DEL', lock)
if head then wake(head, channel) end
return freed
