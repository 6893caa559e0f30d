-- How a script finds out whether its server still is a master. Each script follows with a header of its own.

-- Removes a member that a key does not have, which changes nothing. A master that has become a replica refuses that: what it does
-- not have says nothing about a hold, which the new master may have. Returns that error; nothing if the server may write.
local function refused_by_replica(remove, key, absent)
  local removed = redis.pcall(remove, key, absent)
  if type(removed) == 'table' and string.find(removed.err, 'READONLY', 1, true) then return removed end
end

