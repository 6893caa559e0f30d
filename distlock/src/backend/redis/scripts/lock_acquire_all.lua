-- Acquires several locks, each for its owner, or none of them.
-- Does for each what lock_acquire does, so it has the same effect when it is sent twice.
-- KEYS  1.. locks (hash: owner -> count), any number
-- ARGV  two for each lock: owner, lease in ms
-- Reply nil granted   array: position of a lock that another owner holds, for how many ms (-1 without an end), the owner, how many others
--       array: position of a key with a value of another type
local from, many, at = 1, #KEYS, 1

