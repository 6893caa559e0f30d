-- Frees a fair lock, whoever holds it or only from the owners that were seen, and notifies the first waiter, and those that wait
-- without a place in the queue. Notifies the first waiter even if the lock was free, since an earlier message may have been lost.
-- KEYS  1 lock (hash: owner -> count)   2 queue (list)   3 timeouts (sorted set)   4 ours (sorted set)   5 token (integer), only if one was seen
-- ARGV  1 the lock's channel   2 the token that was seen, or an empty text   3.. the owners that were seen, as `are_seen` has them; missing: any
-- Reply 1 freed   0 the lock was free   -1 another owner holds it
local channel = ARGV[1]

if is_no_lock(lock) then return wrong_type() end
if not are_seen(redis.call('HKEYS', lock), 3) then return -1 end
if has_other_token(lock, KEYS[5], ARGV[2]) then return -1 end
local head = sweep()
local freed = redis.call('DEL', lock)
if head then wake(head, channel) end
if freed == 1 then publish(channel, '0') end
return told(freed)
