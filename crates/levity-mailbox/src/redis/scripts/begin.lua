-- Notes which history of the server writes from now on: its replication id, which each start and each failover change. Boxes of
-- earlier ones go on only if every step since was taken by a process that was there before, and so sees what it lacks. A process
-- that is new, or was there for some of the last steps only, and is patient, gets an empty text: one may come that was for all.
local replication, last_seen, is_patient = redis.call('INFO', 'replication'), ARGV[9], ARGV[10] == '1'
local run = string.match(replication, 'master_replid:(%x+)')
if not run or not string.find(replication, 'role:master') then
  return redis.error_reply('READONLY it is a replica')
end
local last = redis.call('LINDEX', runs, -1)
if run ~= last then
  local is_late = last and last ~= last_seen and (last_seen == '' or redis.call('LPOS', runs, last_seen))
  if is_late and is_patient then
    return ''
  end
  -- The first command needs no memory: then the next one is not refused for want of it.
  redis.call('LTRIM', runs, last == last_seen and -63 or 1, last == last_seen and -1 or 0)
  redis.call('RPUSH', runs, run)
end
return run
