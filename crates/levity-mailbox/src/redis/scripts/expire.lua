-- Drops messages whose deadline is over; their number, and the next deadline.
if not epoch then
  return {0, ''}
end
local expired = expire(ARGV[9], 100)
if expired > 0 then
  write()
end
return {expired, redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2] or ''}
