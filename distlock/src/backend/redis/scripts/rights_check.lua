-- Tells which commands the user may not run, with the keys and channels that they name. Runs none of them.
-- Servers before Redis 7.0 cannot tell.
-- KEYS  none
-- ARGV  of each command how many words it has, and the words..
-- Reply 1 for each command that is allowed and 0 for each other one; nil if the server cannot tell
if not redis.acl_check_cmd then
  return nil
end
local reply, at = {}, 1
while ARGV[at] do
  local last = at + ARGV[at]
  -- A command that the server does not know raises an error.
  local known, allowed = pcall(redis.acl_check_cmd, unpack(ARGV, at + 1, last))
  reply[#reply + 1] = (not known or allowed) and 1 or 0
  at = last + 1
end
return reply
