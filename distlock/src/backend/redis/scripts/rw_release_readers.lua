-- How readers release a lock. Each script follows with a header of its own.

-- How many keys one command deletes: Lua passes some thousand arguments at most.
local MOST_IN_COMMAND = 1000

-- Ends readers, whatever their counts, and leaves the lock to the others. Notifies the waiters if the lock is free now, or
-- will be earlier than they were answered, since no message is sent when a lease expires. Returns for each reader how many
-- subscribers were notified, or -1 if it holds nothing or its lease had ended; and nothing if nobody can tell of one of their entries.
-- Does no harm when it is called twice. A writer's lease is never touched.
local function release_readers(lock, stem, channel, owners)
  local fields = redis.call('HMGET', lock, 'mode', unpack(owners))
  local mode, is_unknown = fields[1], nil
  local left, longest, ended, timeouts = {}, 0, {}, {}
  for i = 1, #owners do
    local owner, count = owners[i], is_mode(mode) and fields[i + 1]
    if count then
      left[i], is_unknown = left_of(lock, stem, owner, count)
      -- Before the first write, so that the release can be sent again.
      if is_unknown then return nil end
      longest = math.max(longest, left[i])
      ended[#ended + 1] = owner
      for entry = 1, entries(count) do timeouts[#timeouts + 1] = timeout_of(stem, owner, entry) end
    end
  end
  local answers, heard = {}, 0
  if #ended == 0 then
    -- Changes nothing. A master that has become a replica refuses it, as it refuses the release of a reader that it has.
    if not fields[2] then redis.call('HDEL', lock, owners[1]) end
  else
    for from = 1, #timeouts, MOST_IN_COMMAND do
      redis.call('DEL', unpack(timeouts, from, math.min(from + MOST_IN_COMMAND - 1, #timeouts)))
    end
    redis.call('HDEL', lock, unpack(ended))
    if mode == 'read' then
      local rest, before = leave_to_readers(lock, stem, longest, #ended)
      -- A TTL below zero is none: the lock had no end.
      local sooner = rest and (rest <= 0 or before < 0 or rest < before - SOONER)
      if sooner then heard = publish(channel, '0') end
    end
  end
  for i = 1, #owners do
    answers[i] = (left[i] or 0) > 0 and heard or -1
  end
  return answers
end

