-- Appends a message, unless the box remembers its key, and drops what exceeds the bounds.
local content, size, deadline, key = ARGV[9], ARGV[10], ARGV[11], ARGV[12]
local messages_max, bytes_max, now, keys_min = tonumber(ARGV[13]), tonumber(ARGV[14]), ARGV[15], tonumber(ARGV[16])

-- What becomes of a stream, if it is still as the process has read it; `ARGV[17]` is not there for other boxes.
local task, seen_epoch, seen_next, new_state = ARGV[17], ARGV[18], ARGV[19], ARGV[20]
local new_number, source, new_idle, id, source_id = ARGV[21], ARGV[22], ARGV[23], ARGV[24], ARGV[25]
if task then
  if epoch then
    follow()
  end
  if task == 'read' or removed ~= '' or (epoch or '') ~= seen_epoch or (next or 1) ~= tonumber(seen_next) then
    if task ~= 'read' and epoch then
      redis.call('HSET', box, 'waiting', process)
    end
    return {'moved', epoch or '', next or 1, state, removed}
  end
  if source ~= '' then
    local found = redis.call('HMGET', box_of(source), 'id', 'removed')
    if found[1] ~= source_id or found[2] then
      return {'no source'}
    end
    -- It stays, even if its time is over and a box is to be made.
    redis.call('HINCRBY', box_of(source), 'heirs', 1)
  end
end

if not enter() then
  if task and source ~= '' then
    redis.call('HINCRBY', box_of(source), 'heirs', -1)
  end
  return {'too many'}
end
if task then
  next, state, idle_ms = tonumber(new_number), new_state, new_idle
  redis.call('HSET', box, 'state', state, 'idle', idle_ms, 'id', id)
  if source ~= '' then
    redis.call('HSET', box, 'source', source, 'source_id', source_id)
  end
  touch(true)
end
local number = key ~= '' and redis.call('ZSCORE', keys, key)
if number then
  return {'duplicate', epoch, tonumber(number)}
end
number = next
redis.call('XADD', log, id_of(text(number)), 'message', content, 'size', size, 'deadline', deadline)
if tonumber(size) > tonumber(redis.call('HGET', box, 'largest') or 0) then
  redis.call('HSET', box, 'largest', size)
end
if count == 0 then
  redis.call('ZREM', unused, name)
  if state == '' then
    redis.call('PEXPIREAT', log, text(ends))
  end
end
next, bytes, count = next + 1, bytes + size, count + 1
if deadline ~= '' then
  redis.call('ZADD', due, deadline, text(number) .. ':' .. size)
  redis.call('PEXPIREAT', due, text(ends))
end
local expired, dropped = expire(now, 100), 0
while not task and (count > messages_max or (bytes > bytes_max and count > 1)) do
  local first = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
  redis.call('XDEL', log, first[1])
  lost, dropped = number_of(first[1]) + 1, dropped + 1
  bytes, count = bytes - first[2][4], count - 1
  if first[2][6] ~= '' then
    redis.call('ZREM', due, text(lost - 1) .. ':' .. first[2][4])
  end
end
if key ~= '' then
  redis.call('ZADD', keys, text(number), key)
  redis.call('PEXPIREAT', keys, text(ends))
  if redis.call('ZCARD', keys) > keys_min + messages_max then
    local first = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
    local kept = first and number_of(first[1]) or next
    local recent = tonumber(redis.call('ZRANGE', keys, -keys_min, -keys_min, 'WITHSCORES')[2])
    redis.call('ZREMRANGEBYSCORE', keys, '-inf', '(' .. text(math.min(kept, recent)))
  end
end
redis.call('HSET', box, 'next', text(next), 'lost', text(lost), 'bytes', text(bytes), 'count', text(count))
-- Another process has been too late: this one gives way to it.
local waiting = task and redis.call('HGET', box, 'waiting')
if waiting then
  redis.call('HDEL', box, 'waiting')
end
redis.call('PUBLISH', channel, 'message ' .. epoch .. ' ' .. text(number) .. ' ' .. text(lost) .. '\n' .. content)
return {'new', epoch, number, lost, dropped, expired, waiting and waiting ~= process and 1 or 0}
