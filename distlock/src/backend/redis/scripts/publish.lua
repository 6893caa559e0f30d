-- What the scripts have in common that publish. Each script has a header of its own.
-- A message is a hint: waiters also look by themselves. So a server that refuses to publish, because the user lacks the right or
-- the channel, or because a provider has taken the command away, does not keep a key from being freed.

-- Why a message was not published, if one was not.
local untold

-- How many subscribers were notified, by the answer of the command that publishes: none if the server refuses.
local function notified(heard)
  if type(heard) == 'number' then return heard end
  -- The slot moves between nodes, or nodes are gone. The script is sent again, then to a node that publishes. What was freed before is
  -- not told then, so its waiters look.
  for _, passing in ipairs({ 'non local key', 'cluster is down' }) do
    if string.find(heard.err, passing, 1, true) then error(heard.err, 0) end
  end
  untold = heard.err
  return heard.notified or 0
end

local function publish(channel, message) return notified(redis.pcall('PUBLISH', channel, message)) end

-- The answer of the script. If a message was not published, an array: 'untold', why, the answer.
local function told(answer)
  if not untold then return answer end
  return { 'untold', untold, answer or false }
end

