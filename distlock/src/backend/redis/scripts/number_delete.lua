-- Removes a semaphore with all its permits, whoever has them or only if it is as it was seen. Publishes nothing, like
-- Redisson's `delete`.
-- KEYS  1 semaphore (integer)   2 owners (hash: owner -> permits)
-- ARGV  1 the number that was seen; missing: any   2.. the owners that were seen, as `are_seen` has them
-- Reply 1 removed   0 there was none   -1 it has another number, or another owner has permits
local number, owners = KEYS[1], KEYS[2]
local seen = ARGV[1]

local count = number_of(number)
-- Fails on a value of another type, which is not ours.
redis.call('HLEN', owners)
if count and seen and (count ~= seen or not are_seen(redis.call('HKEYS', owners), 2)) then return -1 end
redis.call('DEL', number, owners)
return count and 1 or 0
