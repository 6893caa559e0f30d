-- What the scripts for read/write locks have in common. Each script follows with a header of its own.
-- A hash is a read/write lock if its mode is 'read' or 'write' and its other fields are owners. Any other hash counts as
-- held by another owner, without an end that we know of, and is never changed.

-- So many fields are all looked at. Of a larger hash it is a sample of so many.
local MOST_FIELDS = 16
-- More entries of one reader are not looked at. No client of ours makes more, and a field may have any number.
local MOST_ENTRIES = 1000
-- How often a hash is asked for fields on servers before version 6.2, of which it may give fewer than wanted, or none.
local MOST_PAGES = 100

local function is_mode(mode) return mode == 'read' or mode == 'write' end

-- Whether a text is a count, which has 64 bits at most.
local function is_count(text) return text and #text < 20 and string.find(text, '^%d+$') end

-- The entries of a reader with this count.
local function entries(count)
  -- The usual count, without a conversion.
  if count == '1' then return 1 end
  -- In this order: Lua reads 'nan' as a number, and takes it only if it comes first.
  return math.min(MOST_ENTRIES, tonumber(count) or 0)
end

-- What is left of one entry of a reader of a lock, in ms; -2 if it has ended. The second value is true if nobody can tell: while the
-- slot moves to another node of a cluster, the lock and the entry may be at different ones. The node that the slot leaves
-- refuses a key that it does not have. The one that the slot comes to answers as if there were none, and refuses two keys only.
local function left_of_entry(lock, entry)
  local left = redis.pcall('PTTL', entry)
  local seen = left
  if left == -2 then seen = redis.pcall('EXISTS', lock, entry) end
  if type(seen) ~= 'table' then return left end
  if string.find(seen.err, 'non local key', 1, true) then return -2, true end
  error(seen.err, 0)
end

-- The answer of a script that has to be sent again when the slot has moved.
local function try_again() return redis.error_reply('TRYAGAIN a timeout may be at the other node of the slot') end

-- Moves the end of a lock to a later time, never to an earlier one.
local function lengthen(lock, left)
  -- A server before version 7.0 knows neither of these two. GT changes no key that has a later end, and none without an end, which
  -- somebody has removed.
  local is_known = redis.REDIS_VERSION_NUM
  if is_known and (redis.call('PEXPIRE', lock, left, 'GT') == 1 or redis.call('PTTL', lock) >= 0) then return end
  redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(left)))
end

-- Fields of a hash, in any order: all of them, or so many.
local function some_fields(hash, most)
  local fields = redis.pcall('HRANDFIELD', hash, most)
  if not fields.err then return fields end
  if not string.find(fields.err, 'nknown', 1, true) then error(fields.err, 0) end
  -- A server before version 6.2.
  if redis.call('HLEN', hash) <= most then return redis.call('HKEYS', hash) end
  local found, cursor = {}, '0'
  for _ = 1, MOST_PAGES do
    local page = redis.call('HSCAN', hash, cursor, 'COUNT', most)
    for at = 1, #page[2], 2 do
      found[#found + 1] = page[2][at]
      if #found == most then return found end
    end
    cursor = page[1]
  end
  error('the fields of the lock are too sparse to look at')
end

-- Whether an owner is a writer. Those of Redisson's transactions have their id behind it.
local function is_writer(field) return string.find(field, ':write', 38, true) ~= nil end

-- Whether these fields are those of a lock.
local function are_of_lock(fields)
  for _, field in ipairs(fields) do
    if field ~= 'mode' and not is_owner(field) then return false end
  end
  return true
end

-- Whether a hash with this mode is a lock, as far as it is looked at.
local function is_lock(hash, mode)
  if not is_mode(mode) then return false end
  local fields = some_fields(hash, MOST_FIELDS + 1)
  -- A lock has an owner: the last one takes the mode along.
  return #fields > 1 and are_of_lock(fields)
end

