-- Frees a lock, whoever holds it or only from the owners that were seen, and notifies its waiters.
-- KEYS  1 lock (hash: owner -> count)   2 token (integer), only if one was seen
-- ARGV  1 channel   2 the token that was seen, or an empty text   3.. the owners that were seen, as `are_seen` has them; missing: any
-- Reply 1 freed   0 the lock was free   -1 another owner holds it
local lock = KEYS[1]
local channel = ARGV[1]

if is_no_lock(lock) then return wrong_type() end
if not are_seen(redis.call('HKEYS', lock), 3) then return -1 end
if has_other_token(lock, KEYS[2], ARGV[2]) then return -1 end
if redis.call('DEL', lock) == 0 then return 0 end
publish(channel, '0')
return told(1)
