-- How several locks are acquired, all or none: statements, for `many` locks, from the position `from` of KEYS on, each for its owner.
-- Each script has a header of its own. From `at` on, ARGV has two for each lock: owner, lease in ms.
-- They do with each lock what a single attempt does, and return nil if all are granted, or the position of a key with a value of another
-- type, from 1 on. They go on if another owner holds one of the locks, with the number of locks before it in `refused`.

local own, refused = {}, nil
-- One look at all of them, which are free as a rule. `unpack` has no room for thousands.
if many > 1000 or redis.call('EXISTS', unpack(KEYS, from, from + many - 1)) > 0 then
  for i = 0, many - 1 do
    local lock = KEYS[from + i]
    if redis.call('EXISTS', lock) ~= 0 then
      local is_owners = redis.pcall('HEXISTS', lock, ARGV[at + i * 2])
      if is_owners == 0 then
        refused = i
        break
      end
      if is_owners ~= 1 then
        -- The error would not say which of the keys it is about.
        if string.find(is_owners.err, 'WRONGTYPE', 1, true) then return { i + 1 } end
        -- Once more, so that its error ends the script in the words of each version.
        return redis.call('HEXISTS', lock, ARGV[at + i * 2])
      end
      own[i] = true
    end
  end
end
if not refused then
  for i = 0, many - 1 do
    local lock, owner, lease = KEYS[from + i], ARGV[at + i * 2], ARGV[at + i * 2 + 1]
    if own[i] then lease = math.max(redis.call('PTTL', lock), tonumber(lease)) end
    local answer = redis.pcall('HSET', lock, owner, '1')
    -- Compared with 1 first, here and below: that is the usual answer, and a call of `type` costs more.
    if answer ~= 1 and type(answer) == 'table' then
      -- The memory may be full. A PEXPIRE passes then, and lets all later HSETs of the script pass.
      answer = redis.pcall('PEXPIRE', lock, lease)
      if type(answer) ~= 'table' then answer = redis.pcall('HSET', lock, owner, '1') end
    end
    local has_owner = answer == 1 or type(answer) ~= 'table'
    if has_owner then answer = redis.pcall('PEXPIRE', lock, lease) end
    if answer ~= 1 and type(answer) == 'table' then
      -- None of them is granted. Nobody else has a field of those that were free.
      for before = 0, i do
        local freed = own[before] or redis.pcall('HDEL', KEYS[from + before], ARGV[at + before * 2])
        if type(freed) == 'table' then redis.pcall('DEL', KEYS[from + before]) end
      end
      -- Once more, so that the error of the refused command ends the script in the words of each version. In this order: an HSET that
      -- was refused for want of memory may pass now.
      redis.call('PEXPIRE', lock, lease)
      return redis.call('HSET', lock, owner, '1')
    end
  end
  return nil
end
