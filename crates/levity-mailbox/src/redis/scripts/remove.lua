-- Removes a box; whether it was known.
if ARGV[9] ~= '' and ARGV[9] ~= epoch then
  return 0
end
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
