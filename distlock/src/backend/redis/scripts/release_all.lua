-- How several locks are released: statements, for `many` locks, from the position `from` of KEYS on. Each script has a header of
-- its own. From `at` on, ARGV has two for each lock: owner, channel.
-- They end owners' holds, each on its own lock, free these locks and notify their waiters. They return for each lock what a single release
-- returns. If the server refuses a message they go on, with its answer in `heard`, in the place of that lock.

local heard, is_refused = {}, false
for i = 0, many - 1 do
  local ours = redis.pcall('HDEL', KEYS[from + i], ARGV[at + i * 2])
  -- A value of another type is not this owner's lock, and does not keep the others from being released.
  if type(ours) == 'table' and not string.find(ours.err, 'WRONGTYPE', 1, true) then
    -- Once more, so that its error ends the script in the words of each version.
    ours = redis.call('HDEL', KEYS[from + i], ARGV[at + i * 2])
  end
  local of_lock = ours == 1 and redis.pcall('PUBLISH', ARGV[at + i * 2 + 1], '0') or -1
  is_refused = is_refused or type(of_lock) ~= 'number'
  heard[i + 1] = of_lock
end
if not is_refused then return heard end
