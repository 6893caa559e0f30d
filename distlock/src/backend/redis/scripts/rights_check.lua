-- Tells which commands the user may not run, with the keys and channels that they name. Runs none of them.
-- Servers before Redis 7.0 cannot tell.
-- KEYS  none
-- ARGV  commands as JSON arrays of their words, any number..
-- Reply 1 for each command that is allowed and 0 for each other one; nil if the server cannot tell
if not redis.acl_check_cmd then
  return nil
end
local reply = {}
for at, command in ipairs(ARGV) do
  -- A command that the server does not know raises an error.
  local known, allowed = pcall(redis.acl_check_cmd, unpack(cjson.decode(command)))
  reply[at] = (not known or allowed) and 1 or 0
end
return reply
