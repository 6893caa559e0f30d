-- How a lock is released. Each script follows with a header of its own.

-- Ends an owner's hold, whatever its count, which frees the lock, and notifies its waiters. Removes the owner's field and
-- no other one: a hash without fields is gone. Returns how many subscribers were notified, or -1 if the owner holds nothing.
-- Does no harm when it is called twice, and never touches another owner's hold.
local function release(lock, owner, channel)
  if redis.call('HDEL', lock, owner) == 0 then return -1 end
  return publish(channel, '0')
end

