-- Acquires a lock for an owner, so that it has the same effect when it is sent twice.
-- KEYS  1 lock (hash: owner -> count)
-- ARGV  1 owner   2 lease in ms
-- Reply nil granted   n >= 0 held by another owner for n ms   -1 held without an end   array: n, the owner, how many others
local lock, owner, lease = KEYS[1], ARGV[1], ARGV[2]

