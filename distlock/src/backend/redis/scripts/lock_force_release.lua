-- Frees a lock, whoever holds it, and notifies its waiters.
-- KEYS  1 lock (hash: owner -> count)
-- ARGV  1 channel
-- Reply 1 freed   0 the lock was free
local lock = KEYS[1]
local channel = ARGV[1]

if is_no_lock(lock) then return wrong_type() end
if redis.call('DEL', lock) == 0 then return 0 end
redis.call('PUBLISH', channel, '0')
return 1
