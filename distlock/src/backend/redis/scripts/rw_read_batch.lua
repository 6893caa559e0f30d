-- Acquires and releases read locks for several tasks: in groups, of which each either acquires or releases one lock for several
-- owners. What one group meets does not concern the others.
-- Does for each owner what rw_read_acquire or rw_read_release does, so it has the same effect when it is sent twice.
-- KEYS  for each group: lock (hash: mode, owner -> count), turn (the writer's owner, or 'readers'), mark: readers wait
-- Undeclared  timeout keys, <stem><owner>:rwlock_timeout:<n>: only the lock tells which there are; they have its hash tag
-- ARGV  patience in ms, and for each group: stem of the timeout keys; a lease in ms to acquire, or a channel to release; how many
--       owners; the owners
-- Reply one for each owner: as of its own script   array: 'failed', its error

local replies, at, patience = {}, 2, ARGV[1]
for key = 1, #KEYS, 3 do
  local lock, stem, with, many = KEYS[key], ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  looks = MOST_LOOKS
  local owners = { unpack(ARGV, at + 3, at + 2 + many) }
  local is_done, answers
  if tonumber(with) then
    is_done, answers = pcall(acquire_readers, lock, KEYS[key + 1], KEYS[key + 2], stem, '', patience, with, owners)
  else
    is_done, answers = pcall(release_readers, lock, stem, with, owners)
  end
  local failed
  if not is_done then
    failed = type(answers) == 'table' and answers.err or answers
    -- A replica writes nothing, for nobody. The client has to hear it as the error of the command.
    if string.find(failed, 'READONLY', 1, true) then return redis.error_reply(failed) end
  elseif not answers then
    failed = try_again().err
  end
  for i = 1, many do
    -- A nil would end the array.
    replies[#replies + 1] = failed and { 'failed', failed } or answers[i]
  end
  at = at + 3 + many
end
return told(replies)
