-- Ends an owner's hold, whatever its count, or gives up its place in the queue. Notifies the first waiter if the lock
-- is free then, and those that wait for that without a place in the queue. If the first waiter has left, notifies the next one if
-- the lease of the holder ends soon.
-- Does no harm when it is sent twice, and never touches another owner's hold or place.
-- KEYS  1 lock (hash: owner -> count)   2 queue (list)   3 timeouts (sorted set)   4 ours (sorted set)
-- ARGV  1 owner   2 the lock's channel
-- Reply 0 freed   -1 this owner held nothing
local owner, channel = ARGV[1], ARGV[2]

local was_next = redis.call('LINDEX', queue, 0) == owner
local removed = redis.pcall('HDEL', lock, owner)
-- Under a value of another type nobody holds the lock. Any other error ends the script, in the words of each version.
if type(removed) == 'table' and not string.find(removed.err, 'WRONGTYPE', 1, true) then
  removed = redis.call('HDEL', lock, owner)
end
local held = removed == 1
if redis.call('ZSCORE', timeouts, owner) or redis.call('ZSCORE', ours, owner) then leave({ owner }) end
local head = sweep()
if (held or head) and redis.call('EXISTS', lock) == 0 then
  if head then wake(head, channel) end
  if held then publish(channel, '0') end
elseif was_next then
  wake_before_the_end(head, channel)
end
return told(held and 0 or -1)
