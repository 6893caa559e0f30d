-- Ends a reader, whatever its count, and leaves the lock to the others. Notifies the waiters if the lock is free now, or
-- will be earlier than they were answered, since no message is sent when a lease expires.
-- Does no harm when it is sent twice. A writer's lease is never touched.
-- KEYS  1 lock (hash: mode, owner -> count)
-- Undeclared  timeout keys, <stem><owner>:rwlock_timeout:<n>: only the lock tells which there are; they have its hash tag
-- ARGV  1 owner   2 stem of the timeout keys   3 channel
-- Reply n >= 0 ended, and n subscribers were notified   -1 this owner holds nothing, or its lease had ended
local lock = KEYS[1]
local owner, stem, channel = ARGV[1], ARGV[2], ARGV[3]

local mode, count = unpack(redis.call('HMGET', lock, 'mode', owner))
-- Changes nothing. A master that has become a replica refuses it, as it refuses the release of a reader that it has.
if not count then redis.call('HDEL', lock, owner) end
if not is_mode(mode) or not count then return -1 end
local ours, unknown = left_of(lock, stem, owner, count)
local heard = 0
-- Before the first write, so that the release can be sent again.
if unknown then return try_again() end
for hold = 1, entries(count) do
  redis.call('DEL', stem .. owner .. ':rwlock_timeout:' .. hold)
end
redis.call('HDEL', lock, owner)
if mode == 'read' then
  local left, before = leave_to_readers(lock, stem, ours)
  -- A TTL below zero is none: the lock had no end.
  local sooner = left and (left <= 0 or before < 0 or left < before - SOONER)
  if sooner then heard = publish(channel, '0') end
end
return told(ours <= 0 and -1 or heard)
