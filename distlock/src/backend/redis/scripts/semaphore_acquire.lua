-- Acquires permits for an owner if enough are free.
-- A list names the owners that have permits, and a mark those that were withdrawn. So the permits are taken once when
-- this is sent twice, and a withdrawn owner takes none. The list lasts as long as the number.
-- KEYS  1 permits (integer)   2 owners that have some (hash: owner -> how many)   3 mark of a withdrawn owner
-- ARGV  1 owner   2 how many   3 how long it stays after a use in ms, zero: as before
-- Reply nil granted   array: -1, how many owners have some: not enough are free, or the owner was withdrawn   -2 there is no number
local permits, owners, ended = KEYS[1], KEYS[2], KEYS[3]
local owner, wanted, stays = ARGV[1], ARGV[2], ARGV[3]

local free = number_of(permits)
if not free then
  -- Changes nothing. A master that has become a replica refuses it: the new master may have the number.
  redis.call('HDEL', owners, '')
  return -2
end
if redis.call('HEXISTS', owners, owner) == 1 then return nil end
if tonumber(free) < tonumber(wanted) or redis.call('EXISTS', ended) == 1 then
  return { -1, redis.call('HLEN', owners) }
end
-- Changes nothing, passes when memory is full, and then lets the other writes pass.
redis.call('HDEL', owners, '')
redis.call('INCRBY', permits, '-' .. wanted)
redis.call('HSET', owners, owner, wanted)
used(stays, permits, false, owners)
return nil
