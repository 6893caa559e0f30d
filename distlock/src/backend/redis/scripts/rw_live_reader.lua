-- A reader that shows with few commands what a hash is. Each script follows with a header of its own.

-- The timeout key of one entry of a reader.
local function timeout_of(stem, owner, entry)
  -- The usual one, without a conversion.
  if entry == 1 then return stem .. owner .. ':rwlock_timeout:1' end
  return stem .. owner .. ':rwlock_timeout:' .. entry
end

-- What is left, in ms, of the first entry of one reader of a lock. No program but a client of such locks writes an owner and
-- its timeout, so a live one shows that the hash is a lock. Zero or less shows nothing: the reader that was picked has ended, or
-- what was picked is no reader. The second value is true if nobody can tell.
local function left_of_one_reader(lock, stem)
  local fields = redis.pcall('HRANDFIELD', lock, 2)
  -- A server before version 6.2 does not know this command.
  if fields.err then return 0 end
  local one = fields[1] == 'mode' and fields[2] or fields[1]
  if not one or not is_owner(one) then return 0 end
  return left_of_entry(lock, timeout_of(stem, one, 1))
end

-- Whether a reader may be alive, as far as its first entry tells. No attempt fails for a name.
local function may_read(stem, owner)
  local left = redis.pcall('PTTL', timeout_of(stem, owner, 1))
  return type(left) ~= 'number' or left > 0
end

-- The answer of a script that is refused for so long by what holds a lock, with one of its owners and how many others
-- there are. With a `stem` it is a read/write lock, of which no reader is named that has ended.
local function refusal(lock, left, stem)
  -- Nearly always one of two fields is a holder.
  for _, most in ipairs({ 2, MOST_FIELDS }) do
    local fields = redis.pcall('HRANDFIELD', lock, most)
    if fields.err then return left end
    for _, one in ipairs(fields) do
      if one ~= 'mode' and is_owner(one) and (not stem or is_writer(one) or may_read(stem, one)) then
        return { left, one, redis.call('HLEN', lock) - redis.call('HEXISTS', lock, 'mode') - 1 }
      end
    end
  end
  return left
end

