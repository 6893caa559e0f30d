-- Ends several owners' holds, each on its own lock, frees these locks and notifies their waiters.
-- Does for each what lock_release does: no harm when it is sent twice, and another owner's hold is never touched.
-- KEYS  1.. locks (hash: owner -> count), any number
-- ARGV  two for each lock: owner, channel
-- Reply one integer for each lock: n >= 0 freed, and n subscribers were notified   -1 this owner holds nothing
local replies = {}
for i, lock in ipairs(KEYS) do
  local owner, channel = ARGV[i * 2 - 1], ARGV[i * 2]
  local ours = redis.pcall('HDEL', lock, owner)
  if type(ours) == 'table' then
    -- A value of another type is not this owner's lock, and does not keep the others from being released.
    if not string.find(ours.err, 'WRONGTYPE', 1, true) then return ours end
    ours = 0
  end
  replies[i] = ours == 1 and publish(channel, '0') or -1
end
return told(replies)
