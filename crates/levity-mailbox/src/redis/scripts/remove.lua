-- Removes a box; whether it was known.
local was_known = redis.call('EXISTS', box)
if state ~= '' then
  end_stream(name)
else
  forget(name)
  redis.call('DEL', box, log, keys, due)
end
if was_known == 1 then
  redis.call('PUBLISH', channel, 'removed ' .. process)
end
return was_known
