-- How several locks are acquired, all or none. Each script follows with a header of its own.

-- Acquires this many locks, from this position of KEYS on, each for its owner, or none of them. From `at` on, ARGV has two for each
-- lock: owner, lease in ms. Returns nil if they are granted, and otherwise: the position, from 1 on, of a lock that another owner
-- holds, for how many ms, and the owner.
local function acquire_all(from, many, at, checked)
  local free, granted = {}, 0
  for i = 0, many - 1 do
    local lock = KEYS[from + i]
    free[i] = redis.call('EXISTS', lock) == 0
    if not free[i] and redis.call('HEXISTS', lock, ARGV[at + i * 2]) == 0 then
      return { i + 1, held(lock) }
    end
  end
  local function grant_all()
    for i = 0, many - 1 do
      local grant = free[i] and grant_free or grant_again
      grant(KEYS[from + i], ARGV[at + i * 2], ARGV[at + i * 2 + 1], checked)
      granted = i + 1
    end
  end
  local is_done, why = pcall(grant_all)
  if is_done then return nil end
  -- None of them is granted.
  for i = 0, granted - 1 do
    if free[i] then redis.pcall('HDEL', KEYS[from + i], ARGV[at + i * 2]) end
  end
  error(why, 0)
end

