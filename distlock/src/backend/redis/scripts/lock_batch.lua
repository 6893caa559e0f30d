-- Acquires and releases locks for several tasks, in this order, each for itself: what one meets does not concern the others.
-- Does for each what lock_acquire or lock_release does, so it has the same effect when it is sent twice.
-- KEYS  1.. locks (hash: owner -> count), one for each operation, any number
-- ARGV  two for each operation: owner, and a lease in ms to acquire, or a channel to release
-- Reply one for each operation: as of lock_acquire or lock_release   array: 'failed', its error
local replies, checked = {}, {}
for i, lock in ipairs(KEYS) do
  local owner, with = ARGV[i * 2 - 1], ARGV[i * 2]
  local is_done, reply = pcall(tonumber(with) and acquire or release, lock, owner, with, checked)
  if not is_done then
    if type(reply) == 'table' then reply = reply.err end
    -- A replica writes nothing, for nobody. The client has to hear it as the error of the command.
    if string.find(reply, 'READONLY', 1, true) then return redis.error_reply(reply) end
    reply = { 'failed', reply }
  end
  -- A nil would end the array.
  replies[i] = reply or false
end
return told(replies)
