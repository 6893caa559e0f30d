-- Acquires a lock for an owner, with a fencing token above every earlier token of this lock.
-- The token is the last one plus one, or the server's time in microseconds if that is higher, so tokens grow even if
-- the last one was lost. When the attempt is sent twice, the answer is the same token, unless that was lost or the
-- client has seen a higher one: then this server has forgotten later grants.
-- KEYS  1 lock (hash: owner -> count)   2 token (integer)
-- ARGV  1 owner   2 lease in ms   3 highest token seen   4 how long the token is kept in ms, zero: forever
-- Reply text: granted, with this token   n >= 0 held by another owner for n ms   -1 held without an end   array: n, the owner, how many others
local lock, fence = KEYS[1], KEYS[2]
local owner, lease, seen, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

-- Compares decimal texts without leading zeros. As numbers they would lose their last digits.
local function is_above(one, other)
  if #one ~= #other then return #one > #other end
  return one > other
end

-- Above this INCR fails, and the key could never be granted again. No server has issued such a token.
if is_above(seen, '9223372036854775806') then error('no token is above ' .. seen, 0) end

-- The last token, if there is one. Any other text is data of another program.
local function last_token()
  local last = redis.call('GET', fence)
  if last and last ~= '0' and (#last > 19 or not string.find(last, '^[1-9]%d*$')) then refuse_type() end
  return last
end

local function issue(last)
  local time = redis.call('TIME')
  last = last or '0'
  local base = string.format('%.0f', time[1] * 1000000 + time[2] - 1)
  if is_above(seen, base) then base = seen end
  if is_above(last, base) then base = last end
  -- Also to drop a time to live that a multi-lock of Redisson has set.
  if base ~= last or keep == '0' then redis.call('SET', fence, base) end
  redis.call('INCR', fence)
  if keep ~= '0' then redis.call('PEXPIRE', fence, keep) end
end

if redis.call('EXISTS', lock) == 0 then
  local last = last_token()
  -- Before the first write: a PEXPIRE checks the lease even if the key is missing, so an invalid one fails before
  -- anything is stored. It also passes when memory is full, and then lets the other writes pass.
  redis.call('PEXPIRE', lock, lease)
  issue(last)
  redis.call('HSET', lock, owner, '1')
  redis.call('PEXPIRE', lock, lease)
  return redis.call('GET', fence)
end
if redis.call('HEXISTS', lock, owner) == 0 then return refusal(lock) end
local last = last_token()
redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(lease)))
redis.call('HSET', lock, owner, '1')
if not last or is_above(seen, last) then issue(last) end
return redis.call('GET', fence)
