-- Acquires a read lock for an owner.
-- KEYS  1 lock (hash: mode, owner -> count)   2 turn (the writer's owner, or 'readers')   3 mark: readers wait
-- Undeclared  timeout keys, <stem><owner>:rwlock_timeout:<n>: only the lock tells which there are; they have its hash tag
-- ARGV  1 owner   2 lease in ms   3 stem of the timeout keys   4 writer it is nested in, or empty   5 patience in ms
-- Reply nil granted   n >= 0 refused for n ms   -1 held without an end   array: n, an owner, how many others
return acquire_readers(KEYS[1], KEYS[2], KEYS[3], ARGV[3], ARGV[4], ARGV[5], ARGV[2], { ARGV[1] })[1]
