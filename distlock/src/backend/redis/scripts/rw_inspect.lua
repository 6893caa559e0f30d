-- Tells who holds a lock in one mode, how often each holder has entered it, and for how long, all at one moment. A
-- reader whose timeouts have ended holds nothing any more. Of a very large crowd of readers only so many are told.
-- KEYS  1 lock (hash: mode, owner -> count)
-- Undeclared  timeout keys, <stem><owner>:rwlock_timeout:<n>: only the lock tells which there are; they have its hash tag
-- ARGV  1 mode   2 stem of the timeout keys
-- Reply array: ms left (-1 without an end, -2 not held in this mode), then owner and count of each holder
local lock = KEYS[1]
local mode, stem = ARGV[1], ARGV[2]
local MOST_HOLDERS = 10000

local reply, held = { -2 }, redis.call('HGET', lock, 'mode')
if not held and redis.call('EXISTS', lock) == 0 then return reply end
if not is_lock(lock, held) then return wrong_type() end
for _, field in ipairs(some_fields(lock, MOST_HOLDERS)) do
  local writes = is_writer(field)
  if field ~= 'mode' and writes == (mode == 'write') then
    local count = redis.call('HGET', lock, field)
    if not is_count(count) then return wrong_type() end
    local left, unknown
    if not writes then left, unknown = left_of(lock, stem, field, count) end
    -- A reader of which nobody can tell may be alive. Its end is not later than that of the lock.
    if writes or unknown then left = redis.call('PTTL', lock) end
    if writes or unknown or left > 0 then
      reply[1] = math.max(reply[1], left)
      reply[#reply + 1] = field
      reply[#reply + 1] = count
    end
  end
end
return reply
