-- Removes a semaphore with all its permits, whoever has them or only if no others are acquired than those that were seen.
-- KEYS  1 semaphore (number of free permits)   2 permits (sorted set: id -> end in ms)
-- ARGV  1.. the ids that were seen, as `are_seen` has them; missing: any
-- Reply 1 removed   0 there was none   -1 another permit is acquired
local semaphore, permits = KEYS[1], KEYS[2]
local MOST_HOLDERS = 10000

-- Both fail on other data, which is not a semaphore and must not be deleted.
free(semaphore)
check_permits(permits)
if ARGV[1] then
  local now = digits(math.floor(clock()))
  local acquired = redis.call('ZRANGEBYSCORE', permits, '(' .. now, '+inf', 'LIMIT', '0', MOST_HOLDERS)
  local others = redis.call('ZCOUNT', permits, '(' .. now, '+inf') - #acquired
  local looked_at = {}
  for _, id in ipairs(acquired) do looked_at[id] = true end
  local function is_other(id)
    local score = not looked_at[id] and redis.call('ZSCORE', permits, id)
    return score and tonumber(score) > tonumber(now)
  end
  if not are_seen(acquired, 1, others, is_other) then return -1 end
end
return math.min(1, redis.call('DEL', semaphore, permits))
