-- How readers acquire a lock. Each script follows with a header of its own.

-- Acquires the lock for readers, beside other readers or nested in a write lock: that of the owner `around`, if it is not
-- empty. What the readers have in common is looked at once for all of them, before any is granted. Returns an answer for each: false
-- if it is granted, and otherwise the refusal.
-- Sets each count to 1, adds nothing and never shortens a lease, so it has the same effect when it is called twice. While
-- one of our writers waits and has its turn, only readers that hold the lock already are granted. Refused readers
-- leave a mark, which makes the writer's release give the readers their turn. The mark outlives the answer by the
-- patience, within which a reader repeats its attempt.
local function acquire_readers(lock, turn, mark, stem, around, patience, lease, owners)
  local fields = redis.call('HMGET', lock, 'mode', unpack(owners))
  local mode = fields[1]
  local inside = mode and around ~= '' and redis.call('HEXISTS', lock, around .. ':write') == 1
  -- A hash with an owner of ours was recognised when that owner was granted.
  local is_known, first_new = inside, nil
  local timeouts, again = {}, {}
  -- Where keys that are not declared are refused, by an engine or by the patterns of the user's keys, one of these two looks at
  -- a timeout fails, before anything is granted.
  for i = 1, #owners do
    local count = mode and fields[i + 1]
    timeouts[i] = timeout_of(stem, owners[i], 1)
    is_known = is_known or count
    again[i] = (count or inside) and redis.call('EXISTS', timeouts[i]) == 1
    if not again[i] and not inside then first_new = first_new or i end
  end

  local refused
  -- A lock of another kind and other data count as held by another owner, and are left as they are.
  if not mode then
    if redis.call('EXISTS', lock) == 1 then refused = refusal(lock, redis.call('PTTL', lock)) end
  elseif not is_known then
    local has_reader = mode == 'read' and left_of_one_reader(lock, stem) > 0
    if not has_reader and not is_lock(lock, mode) then refused = redis.call('PTTL', lock) end
  end
  if first_new and not refused then
    local wait
    if mode == 'write' then
      wait = redis.call('PTTL', lock)
    else
      local whose = redis.call('EXISTS', turn, timeouts[first_new]) > 0 and redis.call('GET', turn)
      if whose and whose ~= 'readers' then wait = redis.call('PTTL', turn) end
    end
    if wait then
      local keep = string.format('%.0f', math.max(wait, 0) + tonumber(patience))
      -- Before the first write: it passes when memory is full, and then lets the SET pass.
      redis.call('PEXPIRE', mark, keep)
      redis.call('SET', mark, '1', 'PX', keep)
      refused = refusal(lock, wait, stem)
    end
  end

  local answers, left, longest, granted = {}, {}, lease, {}
  for i = 1, #owners do
    local is_new = not again[i] and not inside
    answers[i] = is_new and refused or false
    if not answers[i] then
      -- Usually as it was sent, without a conversion.
      left[i] = lease
      if again[i] then
        left[i] = math.max(tonumber(lease), redis.call('PTTL', timeouts[i]))
        longest = math.max(tonumber(longest), left[i])
      end
      granted[#granted + 1] = owners[i]
      granted[#granted + 1] = '1'
    end
  end
  if #granted == 0 then return answers end
  -- Before the first write: a PEXPIRE checks the lease even if the key is missing, so an invalid one fails before
  -- anything is stored. It also passes when memory is full, and then lets the other writes pass.
  if mode then lengthen(lock, longest) else redis.call('PEXPIRE', lock, longest) end
  for i = 1, #owners do
    local last = left[i] and entries(fields[i + 1]) or 0
    for entry = 2, last do redis.call('DEL', timeout_of(stem, owners[i], entry)) end
  end
  if mode then
    redis.call('HSET', lock, unpack(granted))
  else
    redis.call('HSET', lock, 'mode', 'read', unpack(granted))
    redis.call('PEXPIRE', lock, longest)
  end
  for i = 1, #owners do
    if left[i] then redis.call('SET', timeouts[i], '1', 'PX', left[i]) end
  end
  return answers
end

