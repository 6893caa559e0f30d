-- Puts a new owner in the place of the one that a detached hold has. Sets the count to 1, and never shortens a lease.
-- Has the same effect when it is sent twice: the new owner is in its place then. What is sent for the former owner finds nothing.
-- KEYS  1 lock (hash: owner -> count)   2 token (integer), of a fenced lock alone
-- ARGV  1 owner   2 lease in ms   3 former owner   4 token that the hold is said to have, of a fenced lock alone
-- Reply nil granted   -1 neither of them holds it, or no grant had this token
local lock, fence = KEYS[1], KEYS[2]
local owner, lease, former, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

-- The token comes from a text that may have been changed, and the client's next tokens have to be higher. Lower ones do no harm, and
-- `k` and `{k}` share their tokens. Without the last token none is higher than the server's time.
local function is_issued()
  if not fence then return true end
  local last = redis.call('GET', fence)
  if not last then
    local time = redis.call('TIME')
    last = string.format('%.0f', time[1] * 1000000 + time[2])
  end
  -- As numbers they would lose their last digits.
  if #token ~= #last then return #token < #last end
  return token <= last
end

local is_held = redis.call('HEXISTS', lock, owner) == 1 or redis.call('HEXISTS', lock, former) == 1
if not is_held or not is_issued() then
  -- Changes nothing. A master that has become a replica refuses it: the new master may have the hold. Not the field of the former
  -- owner, which still holds the lock if only the token is wrong.
  redis.call('HDEL', lock, former .. ':none')
  return -1
end
-- First write: passes when memory is full, and lets the next ones pass. An invalid lease fails before anything is stored.
redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(lease)))
redis.call('HSET', lock, owner, '1')
if former ~= owner then redis.call('HDEL', lock, former) end
return nil
