-- Publishes a message sharded and plain, where a script otherwise does one of them. Returns how many subscribers were notified by both
-- together, or the first error.
local function publish_both(channel, message)
  local sharded, plain = redis.pcall('SPUBLISH', channel, message), redis.pcall('PUBLISH', channel, message)
  if type(sharded) ~= 'number' then return sharded end
  if type(plain) ~= 'number' then return plain end
  return sharded + plain
end

