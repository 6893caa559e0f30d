-- Tells whether owners still have what they hold. A write that changes something would be told to other clients that track the
-- keys.
-- KEYS  1.. what holds are in (hash: owner -> count, sorted set: permits), any number
-- ARGV  for each of them: 'hash' or 'set', how many follow, the owners' fields or the permits' ids..
-- Reply the number of holds, then the positions of those that are not their owners' any more
local reply, at = { #KEYS }, 1
for i, key in ipairs(KEYS) do
  local is_set, many = ARGV[at] == 'set', tonumber(ARGV[at + 1])
  local is_ours = true
  for field = at + 2, at + 1 + many do
    local found = redis.pcall(is_set and 'ZSCORE' or 'HEXISTS', key, ARGV[field])
    if type(found) == 'table' then
      -- A value of another type is not this owner's hold. Any other error says nothing about the hold, and is returned.
      if not string.find(found.err, 'WRONGTYPE', 1, true) then return found end
      found = false
    end
    if not found or found == 0 then
      local refused = refused_by_replica(is_set and 'ZREM' or 'HDEL', key, ARGV[field])
      if refused then return refused end
      is_ours = false
    end
  end
  if not is_ours then reply[#reply + 1] = i end
  at = at + 2 + many
end
return reply
