-- How a lock is released: statements, for a `lock`, its `owner` and its `channel`.
-- They end an owner's hold, whatever its count, which frees the lock, and notify its waiters. They remove the owner's field and no
-- other one: a hash without fields is gone. They return how many subscribers were notified, or -1 if the owner holds nothing. If the
-- server refuses the message they go on, with its answer in `heard`.
-- They do no harm when they run twice, and never touch another owner's hold.

if redis.call('HDEL', lock, owner) == 0 then return -1 end
local heard = redis.pcall('PUBLISH', channel, '0')
if type(heard) == 'number' then return heard end

