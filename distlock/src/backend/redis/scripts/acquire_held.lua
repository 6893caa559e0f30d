-- How a lock is acquired that is not free, after `acquire_free.lua`: statements. They return nil if the lock is this owner's already, and
-- otherwise the refusal.
-- Both together set the count to 1, add nothing and never shorten a lease, so they have the same effect when they run twice.

if redis.call('HEXISTS', lock, owner) == 0 then return refusal(lock) end
redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(lease)))
redis.call('HSET', lock, owner, '1')
return nil
