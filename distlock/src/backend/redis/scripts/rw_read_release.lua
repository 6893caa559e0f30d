-- Ends a reader, whatever its count, and leaves the lock to the others. Notifies the waiters if the lock is free now, or
-- will be earlier than they were answered, since no message is sent when a lease expires.
-- Does no harm when it is sent twice. A writer's lease is never touched.
-- KEYS  1 lock (hash: mode, owner -> count)
-- Undeclared  timeout keys, <stem><owner>:rwlock_timeout:<n>: only the lock tells which there are; they have its hash tag
-- ARGV  1 owner   2 stem of the timeout keys   3 channel
-- Reply n >= 0 ended, and n subscribers were notified   -1 this owner holds nothing, or its lease had ended
local lock = KEYS[1]
local owner, stem, channel = ARGV[1], ARGV[2], ARGV[3]
local SOONER = 10 -- ms; a smaller difference is not worth a message

local mode, count = redis.call('HGET', lock, 'mode'), redis.call('HGET', lock, owner)
if not mode or not count then return -1 end
local ours, heard = left_of(stem, owner, count), 0
for hold = 1, tonumber(count) or 0 do
  redis.call('DEL', stem .. owner .. ':rwlock_timeout:' .. hold)
end
redis.call('HDEL', lock, owner)
if mode == 'read' then
  local whole = redis.call('PTTL', lock)
  if whole < 0 then whole = math.huge end
  local left = leave_to_readers(lock, stem)
  if left and (left <= 0 or left < whole - SOONER) then heard = redis.call('PUBLISH', channel, '0') end
end
if ours <= 0 then return -1 end
return heard
