-- Tells what is under a key and beside it, whichever primitive that is, all at one moment. Only reads, and little of what is
-- large: the key may belong to another program.
-- KEYS  1 key   2 fair queue (list)   3 timeouts of its waiters (sorted set)   4 those of ours (sorted set)   5 token (integer)   6 permits (sorted set: id -> end in ms)   7 owners of permits (hash: owner -> how many)
-- Undeclared  timeout keys of readers, <stem><owner>:rwlock_timeout:<n>: only the lock tells which there are; they have its hash tag
-- ARGV  1 how many of a list are told   2 stem of the timeout keys   3 to 6 channels of a lock, a read/write lock, a semaphore and a latch   7 to 8 subcommands of PUBSUB that count listeners, the second one may be empty
-- Reply array: type of the value, ms left (-1 without an end, -2 no key), its text if it is short
-- then five arrays, each with the number of all first: field, value and ms left of each holder; owner and ms left of each live
-- waiter; id and ms left of each permit (-1 without an end); owner and number of each that has permits; the number of ended permits
-- then the token or nil, and the numbers of listeners of the four channels or nil if the user may not ask
local key, queue, timeouts, ours, token, permits, owners =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local most, stem = tonumber(ARGV[1]), ARGV[2]
-- More entries of one reader are not looked at. A field of another program may have any number.
local MOST_ENTRIES = 1000
-- A number is not longer.
local LONGEST_TEXT = 32
local PERMANENT = '922337203685477'

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- A value of another type has no part in a primitive.
local function or_none(answer, none)
  if type(answer) ~= 'table' or not answer.err then return answer end
  if string.find(answer.err, 'WRONGTYPE', 1, true) then return none end
  error(answer.err, 0)
end

-- A time that the server can tell as an integer. A score may be infinite.
local function told(ms)
  return math.floor(math.min(ms, 2 ^ 53))
end

-- The fields of a hash with their values. A large one is told in part.
local function fields_of(hash)
  local total = or_none(redis.pcall('HLEN', hash), 0)
  if total == 0 then return 0, {} end
  return total, redis.call('HSCAN', hash, '0', 'COUNT', most)[2]
end

local left, kind = redis.call('PTTL', key), redis.call('TYPE', key).ok
local text, holders = false, { 0 }
if kind == 'string' then
  text = redis.call('GETRANGE', key, 0, LONGEST_TEXT)
elseif kind == 'hash' then
  local total, fields = fields_of(key)
  -- Of a large hash it may not be among the fields that are told.
  local mode = redis.call('HGET', key, 'mode')
  holders = mode and { total, 'mode', mode, left } or { total }
  for at = 1, #fields, 2 do
    local field, value, field_left = fields[at], fields[at + 1], left
    if mode and not is_writer(field) then
      -- If the user or the engine refuses the timeout keys, the end of the lock is known: the reader's is not later.
      local is_known, reader_left, unknown = pcall(left_of, key, stem, field, math.min(MOST_ENTRIES, tonumber(value) or 0))
      if is_known and not unknown then field_left = reader_left end
    end
    if field ~= 'mode' then
      holders[#holders + 1] = field
      holders[#holders + 1] = value
      holders[#holders + 1] = field_left
    end
  end
end

local waiters = { or_none(redis.pcall('LLEN', queue), 0) }
if waiters[1] > 0 then
  for _, owner in ipairs(redis.call('LRANGE', queue, 0, most - 1)) do
    local dead_at = or_none(redis.pcall('ZSCORE', ours, owner)) or or_none(redis.pcall('ZSCORE', timeouts, owner))
    local place_left = dead_at and told(tonumber(dead_at) - now) or 0
    if place_left > 0 then
      waiters[#waiters + 1] = owner
      waiters[#waiters + 1] = place_left
    else
      waiters[1] = waiters[1] - 1
    end
  end
end

local digits = string.format('%.0f', now)
local taken, ended = { or_none(redis.pcall('ZCOUNT', permits, '(' .. digits, '+inf'), 0) }, 0
ended = or_none(redis.pcall('ZCOUNT', permits, '-inf', digits), 0)
if taken[1] > 0 then
  local ids = redis.call('ZRANGEBYSCORE', permits, '(' .. digits, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
  for at = 1, #ids, 2 do
    taken[#taken + 1] = ids[at]
    taken[#taken + 1] = ids[at + 1] == PERMANENT and -1 or told(tonumber(ids[at + 1]) - now)
  end
end

local owner_total, with_permits = fields_of(owners)
table.insert(with_permits, 1, owner_total)

local last = or_none(redis.pcall('GETRANGE', token, 0, LONGEST_TEXT), '')
if last == '' then last = false end

local listeners = { 0, 0, 0, 0 }
for at = 7, 8 do
  if ARGV[at] ~= '' and listeners then
    local counted = redis.pcall('PUBSUB', ARGV[at], ARGV[3], ARGV[4], ARGV[5], ARGV[6])
    if counted.err then
      listeners = false
    else
      -- A client that listens both ways counts once.
      for channel = 1, 4 do listeners[channel] = math.max(listeners[channel], counted[2 * channel]) end
    end
  end
end
return { kind, left, text, holders, waiters, taken, with_permits, { ended }, last, listeners }
