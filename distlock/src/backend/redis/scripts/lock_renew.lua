-- Renews locks that still are their owners', and sets how often each owner has entered its lock.
-- Never creates a lock and never shortens a lease, so it does no harm when it is sent twice or late.
-- KEYS  1.. locks (hash: owner -> count), any number
-- ARGV  1 what all owners begin with   2 usual lease in ms   then for each lock: the rest of its owner
-- then three for each lock with another count than 1 or another lease: position, count, lease in ms
-- Reply the number of locks, then the positions of those that are not their owners' any more
local stem, usual_lease = ARGV[1], ARGV[2]
local counts, leases = {}, {}
for at = #KEYS + 3, #ARGV, 3 do
  local i = tonumber(ARGV[at])
  counts[i], leases[i] = ARGV[at + 1], ARGV[at + 2]
end

-- GT is of Redis 7.0, which is the first version that tells its number.
local has_gt = redis.REDIS_VERSION_NUM

-- Moves the end of a lock's lease, and never to an earlier time.
local function lengthen(lock, lease)
  -- One command for most: GT changes no key that has no end or a later one.
  if has_gt and redis.call('PEXPIRE', lock, lease, 'GT') == 1 then return end
  redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(lease)))
end

-- Nearly all are renewed. Otherwise a client with thousands of locks would have to read an answer for each.
local reply = { #KEYS }
for i, lock in ipairs(KEYS) do
  local owner, count, lease = stem .. ARGV[i + 2], counts[i] or '1', leases[i] or usual_lease
  local stated = redis.pcall('HGET', lock, owner)
  -- Compared with the count first: that is the usual answer, and a call of `type` costs more.
  if stated ~= count and type(stated) == 'table' then
    -- A value of another type is not this owner's lock. Any other error says nothing about the lock, and is returned.
    if not string.find(stated.err, 'WRONGTYPE', 1, true) then return stated end
    stated = nil
  end
  if stated then
    -- First write: passes when memory is full, and lets the next ones pass. An invalid lease fails before anything is
    -- stored.
    lengthen(lock, lease)
    if stated ~= count then redis.call('HSET', lock, owner, count) end
  else
    local refused = refused_by_replica('HDEL', lock, owner)
    if refused then return refused end
    reply[#reply + 1] = i
  end
end
return reply
