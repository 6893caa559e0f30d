-- How several locks are released. Each script follows with a header of its own.

-- Ends owners' holds of this many locks, from this position of KEYS on, each on its own lock, frees these locks and notifies their
-- waiters. From `at` on, ARGV has two for each lock: owner, channel. Returns for each lock what `release` returns.
local function release_all(from, many, at)
  local replies = {}
  for i = 0, many - 1 do
    local ours = redis.pcall('HDEL', KEYS[from + i], ARGV[at + i * 2])
    -- A value of another type is not this owner's lock, and does not keep the others from being released.
    if type(ours) == 'table' and not string.find(ours.err, 'WRONGTYPE', 1, true) then
      -- Once more, so that its error ends the script in the words of each version.
      ours = redis.call('HDEL', KEYS[from + i], ARGV[at + i * 2])
    end
    replies[i + 1] = ours == 1 and publish(ARGV[at + i * 2 + 1], '0') or -1
  end
  return replies
end

