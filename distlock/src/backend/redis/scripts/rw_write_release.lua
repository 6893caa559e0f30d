-- Ends a writer, whatever its count, or gives up the turn of a waiting one. If readers nested in the writer's hold are
-- left, the lock is theirs; otherwise it is free. Notifies all waiters. Refused readers
-- get their turn for a moment, in which none of our waiting writers is granted.
-- Does no harm when it is sent twice, and never touches another owner's hold.
-- KEYS  1 lock (hash: mode, owner -> count)   2 turn (the writer's owner, or 'readers')   3 mark: readers wait
-- Undeclared  timeout keys, <stem><owner>:rwlock_timeout:<n>: only the lock tells which there are; they have its hash tag
-- ARGV  1 owner   2 stem of the timeout keys   3 channel   4 the readers' turn in ms
-- Reply n >= 0 ended, and n subscribers were notified   -1 this owner holds nothing
local lock, turn, mark = KEYS[1], KEYS[2], KEYS[3]
local owner, stem, channel, moment = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local writer = owner .. ':write'

if redis.call('HDEL', lock, writer) == 0 then
  if redis.call('GET', turn) == owner then
    redis.call('DEL', turn, mark)
    publish(channel, '1')
  end
  return told(-1)
end
local left, _, is_other = leave_to_readers(lock, stem)
if left ~= 0 and not is_other then redis.call('HSET', lock, 'mode', 'read') end
if redis.call('DEL', mark) == 1 then
  redis.call('SET', turn, 'readers', 'PX', moment)
else
  redis.call('DEL', turn)
end
return told(publish(channel, '1'))
