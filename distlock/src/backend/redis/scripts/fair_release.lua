-- Ends an owner, whatever it has: its hold, whatever its count, or its place in the queue; and wakes the first waiter
-- where nobody holds the lock then.
-- States that the owner has nothing: sent twice it does no harm, and never touches another owner's hold or place.
-- KEYS  1 lock (hash: owner -> count)   2 queue (list)   3 timeouts (sorted set)   4 ours (sorted set)
-- ARGV  1 owner   2 the lock's channel
-- Reply 0 freed   -1 this owner held nothing
local owner, channel = ARGV[1], ARGV[2]

local held = redis.call('HEXISTS', lock, owner) == 1
if held then redis.call('DEL', lock) end
if redis.call('ZSCORE', timeouts, owner) or redis.call('ZSCORE', ours, owner) then leave(owner) end
local head = sweep()
if head and redis.call('EXISTS', lock) == 0 then wake(head, channel) end
return held and 0 or -1
