-- What the scripts that look at readers have in common. Each script follows with a header of its own.

-- With more readers than this, a lock keeps its TTL when one of them leaves.
local FEW = 8
-- How many ended readers, or entries of theirs, one script looks at before it leaves the rest of them.
local MOST_ENDED = 1000
-- How many entries are looked at for one lock, of all readers together. A lock that a release leaves has fewer.
local MOST_LOOKS = 20000
local looks = MOST_LOOKS
-- A difference of so many ms between two TTLs is not worth a command or a message.
local SOONER = 10

-- What is left of a reader with this count, in ms; 0 or less if it has ended. The second value is true if nobody can tell of
-- one of its entries, or not all of them are looked at.
local function left_of(lock, stem, field, count)
  local left, last = 0, math.min(entries(count), looks)
  local unknown = last < entries(count)
  for hold = 1, last do
    local of_entry, is_unknown = left_of_entry(lock, timeout_of(stem, field, hold))
    left, unknown = math.max(left, of_entry), unknown or is_unknown
  end
  looks = looks - math.max(last, 0)
  return left, unknown
end

-- Removes ended readers from a lock with more than a few, until only few are left, one is alive or enough were looked at. Returns
-- the fields if only few are left; nil otherwise, and true if it is data of another program. Then the lock keeps its TTL.
local function few_fields(lock, stem)
  local ended, is_enough, fields = 0, false, some_fields(lock, FEW + 2)
  while #fields > FEW + 1 do
    if is_enough then return nil end
    for _, field in ipairs(fields) do
      if field ~= 'mode' and not is_enough then
        local count = redis.call('HGET', lock, field)
        if not is_owner(field) or not is_count(count) then return nil, true end
        local left, unknown = left_of(lock, stem, field, count)
        is_enough = left > 0 or unknown or ended >= MOST_ENDED
        if not is_enough then
          redis.call('HDEL', lock, field)
          ended = ended + math.max(entries(count), 1)
        end
      end
    end
    fields = some_fields(lock, FEW + 2)
  end
  return fields
end

-- Whether these fields are readers of ours, whose ids have the version 8.
local function are_ours(fields)
  for _, field in ipairs(fields) do
    if field ~= 'mode' and string.sub(field, 15, 15) ~= '8' then return false end
  end
  return true
end

-- Leaves a lock without a writer to its readers, and removes those that have ended. Without a live one the lock is
-- deleted. A few readers are looked at until one lasts as long as the lock; if none does, the lock lasts until the last of
-- them ends. Among more it is enough that one is alive: then nobody looks at the others, and the lock keeps its TTL. It may be
-- too long, and is never too short.
-- So does a hash with fields of other programs.
-- `ours`: what was left, in ms, of the readers that have just gone, if some have, and `gone`: how many. If the TTL of the lock is
-- longer it is that of another one of the few, and nobody is looked at. It may be too long if the readers have just become few, and
-- beside a reader of Redisson, whose write lock leaves its own TTL to the reader inside of it.
-- Returns what is left of the lock in ms, zero if it is free, and its TTL before; nil if it kept its TTL. The third value
-- is true if the hash has other fields.
local function leave_to_readers(lock, stem, ours, gone)
  local length = redis.call('HLEN', lock)
  if length > FEW + 1 then
    local left, unknown = left_of_one_reader(lock, stem)
    if left > 0 or unknown then return nil end
  end
  local fields, is_other = few_fields(lock, stem)
  if not fields then return nil, nil, is_other end
  local before, longest = redis.call('PTTL', lock), 0
  local were_few = ours and length + gone <= FEW + 1
  if #fields > 1 and were_few and ours < before - SOONER and are_ours(fields) then return nil end
  if not are_of_lock(fields) then return nil, before, true end
  if #fields > 1 then
    local counts = redis.call('HMGET', lock, unpack(fields))
    for i, field in ipairs(fields) do
      if field ~= 'mode' and not is_count(counts[i]) then return nil, before, true end
    end
    for i, field in ipairs(fields) do
      if field ~= 'mode' then
        local left, unknown = left_of(lock, stem, field, counts[i])
        -- It may be alive.
        if unknown then return nil end
        -- It lasts for as long as the lock does: nobody else decides when the lock ends. One that lasts for longer decides
        -- nothing: a renewal of Redisson's may have cut the lock's time.
        if before >= 0 and math.abs(left - before) <= SOONER then return nil end
        if left <= 0 then redis.call('HDEL', lock, field) end
        longest = math.max(longest, left)
      end
    end
  end
  if longest > 0 then
    redis.call('PEXPIRE', lock, longest)
  else
    redis.call('DEL', lock)
  end
  return longest, before
end

