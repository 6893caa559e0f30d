-- Ends an owner's hold, whatever its count, and notifies the waiters. Does no harm when it is sent twice.
-- KEYS  1 lock (hash: owner -> count)
-- ARGV  1 owner   2 channel
-- Reply n >= 0 freed, and n subscribers were notified   -1 this owner holds nothing
local lock, owner, channel = KEYS[1], ARGV[1], ARGV[2]

