-- Ends an owner: gives its permits back if it has any, and publishes how many are free. Permits of a semaphore that was
-- removed since are not given back.
-- Has no effect when it is sent again, because the owner is removed with its permits. Where an attempt of this owner may
-- still arrive, a mark of its end is left, with which that attempt takes nothing.
-- KEYS  1 permits (integer)   2 owners that have some (hash: owner -> how many)   3 mark of a withdrawn owner
-- ARGV  1 owner   2 how many, zero: none are given back   3 channel   4 how long the mark is kept in ms, zero: none is left   5 how long it stays after a use in ms, zero: as before
-- Reply n >= 0 given back, and n subscribers were notified   -1 this owner had nothing
local permits, owners, ended = KEYS[1], KEYS[2], KEYS[3]
local owner, many, channel, kept, stays = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local free = number_of(permits)
-- First write: passes when memory is full, and then lets the other writes pass.
local had = redis.call('HDEL', owners, owner)
if kept ~= '0' then redis.call('SET', ended, '1', 'PX', kept) end
if had == 0 or not free then return -1 end
used(stays, permits, false, owners)
if many == '0' then return 0 end
free = redis.call('INCRBY', permits, many)
if free <= 0 then return 0 end
-- Redisson reads it as a number of 32 bits.
return told(publish(channel, string.format('%.0f', math.min(free, 2147483647))))
