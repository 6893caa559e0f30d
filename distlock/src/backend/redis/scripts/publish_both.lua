-- Publishes a message sharded and plain, where a script otherwise does one of them. Returns how many subscribers were notified by both
-- together. If the server refuses one of them, returns its error, with the number of the other one.
local function publish_both(channel, message)
  local refused
  local notified = 0
  for _, command in ipairs({ 'SPUBLISH', 'PUBLISH' }) do
    local heard = redis.pcall(command, channel, message)
    if type(heard) == 'number' then notified = notified + heard else refused = refused or heard end
  end
  if not refused then return notified end
  refused.notified = notified
  return refused
end

