-- Tells which commands the server does not have, because they were renamed or disabled. Changes nothing.
-- Without arguments a command is not executed: one that exists is refused for that, before the rights of the user count.
-- KEYS  none
-- ARGV  names of commands, any number..
-- Reply the names of those that are missing
local missing = {}
for _, name in ipairs(ARGV) do
  local answer = redis.pcall(name)
  if type(answer) == 'table' and answer.err and string.find(answer.err, 'nknown', 1, true) then
    table.insert(missing, name)
  end
end
return missing
