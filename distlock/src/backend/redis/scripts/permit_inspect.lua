-- Tells which permits are acquired, at most 10 000 of them, and when the next one ends, all at one moment. Without a number nobody
-- has any. Only reads.
-- KEYS  1 semaphore (number of free permits)   2 permits (sorted set: id -> end in ms)
-- ARGV  none
-- Reply array: ms until the next one ends (-1 none has an end), then the id of each
local semaphore, permits = KEYS[1], KEYS[2]
local MOST_HOLDERS = 10000

if not free(semaphore) then return { -1 } end
local now = clock()
local out = redis.call('ZRANGEBYSCORE', permits, '(' .. digits(math.floor(now)), '+inf', 'LIMIT', '0', MOST_HOLDERS)
check_ids(out)
local left = -1
if #out > 0 then
  local nearest = redis.call('ZSCORE', permits, out[1])
  if nearest ~= '922337203685477' then left = math.floor(nearest - now) end
end
table.insert(out, 1, left)
return out
