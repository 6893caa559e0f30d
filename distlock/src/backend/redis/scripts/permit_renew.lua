-- Renews the permits of owners that still have all of theirs. Without a number nobody has any.
-- Never brings a permit back and never shortens a lease, so it does no harm when it is sent twice or late.
-- KEYS  1.. two for each of them: permits (sorted set: id -> end in ms), semaphore (number of free permits)
-- ARGV  four for each of them: seed of the ids, how many, lease in ms, how long it stays after a use in ms, zero: as before
-- Reply the number of owners, then the positions of those that do not have all of theirs any more
local now, reply = clock(), { #KEYS / 2 }

-- An answer. A value of another type is not this owner's semaphore. Any other error says nothing about it, and is returned as
-- the second value.
local function or_nothing(answer)
  if type(answer) ~= 'table' then return answer end
  if not string.find(answer.err, 'WRONGTYPE', 1, true) then return nil, answer end
end

-- The owner's permits with the end of each, if it still has them all.
local function all(semaphore, permits, seed, many)
  local number, failed = or_nothing(redis.pcall('GET', semaphore))
  if failed or not number or not is_number(number) then return nil, failed end
  local out
  out, failed = or_nothing(redis.pcall('ZCARD', permits))
  if not out or many > out then return nil, failed end
  local ends = {}
  for n = 1, many do
    local permit = id(seed, n - 1)
    local score = tonumber(redis.call('ZSCORE', permits, permit) or 0)
    if score <= now then return nil end
    ends[permit] = score
  end
  return ends
end

for i = 1, #KEYS / 2 do
  local permits, semaphore = KEYS[i * 2 - 1], KEYS[i * 2]
  local seed, many, lease, stays = ARGV[i * 4 - 3], tonumber(ARGV[i * 4 - 2]), tonumber(ARGV[i * 4 - 1]), ARGV[i * 4]
  local ends, failed = all(semaphore, permits, seed, many)
  if failed then return failed end
  if ends then
    local expires = end_of(lease, now)
    begin_writing(permits)
    for permit, score in pairs(ends) do
      redis.call('ZADD', permits, 'XX', digits(math.max(expires, score)), permit)
    end
    used_for(lease, stays, semaphore, permits)
  else
    local refused = refused_by_replica('ZREM', permits, NO_PERMIT)
    if refused then return refused end
    reply[#reply + 1] = i
  end
end
return reply
