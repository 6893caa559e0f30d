-- How a script finds out whether its server still is a master that may write. Each script follows with a header of its own.

-- Why a server refuses to write: it has become a replica, it has too few replicas, or it is cut off from its cluster.
local NOT_A_MASTER = { 'READONLY', 'NOREPLICAS', 'cluster is down' }

-- Removes a member that a key does not have, which changes nothing. A server that refuses that for such a reason may be empty
-- while another one is the master: what it does not have says nothing about a hold. Returns the error; nothing if the server may
-- write.
local function refused_by_replica(remove, key, absent)
  local removed = redis.pcall(remove, key, absent)
  if type(removed) ~= 'table' then return end
  for _, reason in ipairs(NOT_A_MASTER) do
    if string.find(removed.err, reason, 1, true) then return removed end
  end
end

