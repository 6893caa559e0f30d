-- Releases a read lock for an owner.
-- KEYS  1 lock (hash: mode, owner -> count)
-- Undeclared  timeout keys, <stem><owner>:rwlock_timeout:<n>: only the lock tells which there are; they have its hash tag
-- ARGV  1 owner   2 stem of the timeout keys   3 channel
-- Reply n >= 0 ended, and n subscribers were notified   -1 this owner holds nothing, or its lease had ended
local answers = release_readers(KEYS[1], ARGV[2], ARGV[3], { ARGV[1] })
if not answers then return try_again() end
return told(answers[1])
