-- What a refusal tells of the holder of a lock. Each script has a header of its own.

-- A longer name is data of another program.
local LONGEST_NAME = 200

-- For how long a lock is held, and its holder and how many others there are. Only for how long, if there is more than a
-- holder in the hash, which is then no such lock, or if the user may not look: no attempt fails for a name.
local function held(lock)
  local left = redis.call('PTTL', lock)
  if redis.pcall('HLEN', lock) ~= 1 then return left end
  local one = redis.pcall('HKEYS', lock)[1]
  if not one or #one > LONGEST_NAME then return left end
  return left, one, 0
end

-- The answer of a script that is refused by the holder of a lock.
local function refusal(lock)
  local left, one, others = held(lock)
  return one and { left, one, others } or left
end

