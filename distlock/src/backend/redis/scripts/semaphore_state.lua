-- States once more that an owner has its permits, as a write that replicas can confirm.
-- Takes no permits, so it does no harm when it is sent twice or late.
-- KEYS  1 owners that have permits (hash: owner -> how many)
-- ARGV  1 owner   2 how many
-- Reply as for a renewal of one: 1, then the position 1 if the owner does not have them
local owners, owner, permits = KEYS[1], ARGV[1], ARGV[2]

-- Changes nothing, passes when memory is full, and then lets the other write pass. A master that has become a replica refuses it:
-- the new master may have the owner.
redis.call('HDEL', owners, '')
if redis.call('HGET', owners, owner) ~= permits then return { 1, 1 } end
redis.call('HSET', owners, owner, permits)
return { 1 }
