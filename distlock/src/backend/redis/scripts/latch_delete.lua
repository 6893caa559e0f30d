-- Removes a count-down latch and notifies its waiters. One that hears no message finds a mark of the opening for a while.
-- KEYS  1 latch (integer)   2 which opening was the last one
-- ARGV  1 channel   2 which opening this is   3 how long that is remembered in ms   4 the count that was seen, empty: any
-- Reply 1 removed   0 there was none   -1 it is another count
local latch, opened = KEYS[1], KEYS[2]
local channel, opening, kept, seen = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local count = number_of(latch)
-- Changes nothing. A master that has become a replica refuses it: the new master may have the latch.
if not count then return redis.call('DEL', latch) end
if seen ~= '' and count ~= seen then return -1 end
-- Before the first change: a PEXPIRE checks the time even if the key is missing, passes when memory is full, and then
-- lets the other writes pass.
redis.call('PEXPIRE', opened, kept)
redis.call('DEL', latch)
redis.call('SET', opened, opening, 'PX', kept)
publish(channel, '0')
return told(1)
