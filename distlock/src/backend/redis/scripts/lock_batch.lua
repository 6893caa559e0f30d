-- Acquires and releases locks for several tasks, in this order, each for itself: what one meets does not concern the others.
-- Does for each what lock_acquire, lock_release, lock_acquire_all or lock_release_all does, so it has the same effect when it is sent
-- twice.
-- KEYS  1.. locks (hash: owner -> count), one or several for each operation, any number
-- ARGV  for each operation on one lock: owner, and a lease in ms to acquire, or a channel to release
--       for each operation on several: how many, and for each of them the same two
-- Reply one for each operation: as of its own script   array: 'failed', its error

-- Numbers are shorter than owners and channels.
local LONGEST_NUMBER = 20
local replies = {}
local key, at, many, done = 1, 1, #KEYS, 0
while key <= many do
  local owner, with = ARGV[at], ARGV[at + 1]
  local is_done, reply
  if #owner <= LONGEST_NUMBER then
    local several, is_attempt = tonumber(owner), #ARGV[at + 2] <= LONGEST_NUMBER
    is_done, reply = pcall(is_attempt and acquire_all or release_all, key, several, at + 1)
    key, at = key + several, at + 1 + several * 2
  else
    local is_attempt = #with <= LONGEST_NUMBER
    is_done, reply = pcall(is_attempt and acquire or release, KEYS[key], owner, with)
    key, at = key + 1, at + 2
  end
  if not is_done then
    if type(reply) == 'table' then reply = reply.err end
    -- A replica writes nothing, for nobody. The client has to hear it as the error of the command.
    if string.find(reply, 'READONLY', 1, true) then return redis.error_reply(reply) end
    reply = { 'failed', reply }
  end
  done = done + 1
  -- A nil would end the array.
  replies[done] = reply or false
end
return told(replies)
