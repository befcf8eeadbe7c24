-- Moves the read position of a life of the box forward.
local position = math.min(tonumber(ARGV[10]), next or 0)
if ARGV[9] == epoch and position > read then
  redis.call('HSET', box, 'read', text(position))
end
return 1
