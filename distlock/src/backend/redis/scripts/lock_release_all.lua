-- Ends several owners' holds, each on its own lock, frees these locks and notifies their waiters.
-- Does for each what lock_release does: no harm when it is sent twice, and another owner's hold is never touched.
-- KEYS  1.. locks (hash: owner -> count), any number
-- ARGV  two for each lock: owner, channel
-- Reply one integer for each lock: n >= 0 freed, and n subscribers were notified   -1 this owner holds nothing
local from, many, at = 1, #KEYS, 1

