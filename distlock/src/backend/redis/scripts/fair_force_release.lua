-- Frees a fair lock, whoever holds it, and wakes the first waiter, also where it was free: its message may be lost.
-- KEYS  1 lock (hash: owner -> count)   2 queue (list)   3 timeouts (sorted set)   4 ours (sorted set)
-- ARGV  1 the lock's channel
-- Reply 1 freed   0 it was free
local channel = ARGV[1]

-- Asking for a field fails on a value of another type, which is nobody's lock and must stay.
redis.call('HEXISTS', lock, '')
local freed = redis.call('DEL', lock)
local head = sweep()
if head then wake(head, channel) end
return freed
