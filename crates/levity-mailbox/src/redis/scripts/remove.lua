-- Removes a box; whether it was known.
forget(name)
local was_known = redis.call('DEL', box)
redis.call('DEL', log, keys, due)
if was_known == 1 then
  redis.call('PUBLISH', channel, 'removed ' .. process)
end
return was_known
