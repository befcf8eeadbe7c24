-- Every script begins with this text. It reads a box, makes it if it is not known, and gives it a new epoch if messages
-- were lost. Numbers of messages are doubles here, which are exact up to 2^53; epochs are larger and stay texts.
local box, log, keys, due, names, idle, unused, epochs, runs = unpack(KEYS)
local channel, name, candidate = ARGV[1], ARGV[2], ARGV[3]
-- What the process has seen of the box: its epoch, and the number after the last message.
local known_epoch, known_next = ARGV[4], tonumber(ARGV[5])
local idle_ms, boxes_max, process = ARGV[6], tonumber(ARGV[7]), ARGV[8]

-- `run` is the history of the server that has written the box last, and `forks` are the numbers that it has left out since:
-- pairs of the first one, and the one after the last. `ends` is when the idle time ends, by the clock of the server.
-- `largest` is the size of the largest message that there was.
--
-- A stream has further fields: `state`, which only processes read, `id`, `idle`, its own idle time, `source` and `source_id`, the name and
-- the id of the stream that it inherits from, `heirs`, how many inherit from it, and `removed`, which says that it is there for these only.
-- `waiting` is the last process whose update of the state came too late.
local fields = redis.call('HMGET', box, 'epoch', 'run', 'forks', 'next', 'lost', 'read', 'bytes', 'count', 'ends',
  'state', 'idle', 'removed')
local epoch, box_run, forks = fields[1], fields[2], fields[3] or ''
local next, lost, read = tonumber(fields[4]), tonumber(fields[5]), tonumber(fields[6])
local bytes, count, ends = tonumber(fields[7]), tonumber(fields[8]), tonumber(fields[9])
local state, removed = fields[10] or '', fields[12] or ''
idle_ms = fields[11] or idle_ms

local function text(number)
  return string.format('%.0f', number)
end

local function is_larger(one, other)
  return #one > #other or (#one == #other and one > other)
end

local function server_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Begins the idle time anew, unless it began lately: so it is up to a sixteenth longer. All keys of the box end together; those of
-- a stream do not end by themselves, as what it inherits from may end with it.
local function touch(always)
  if removed ~= '' then
    return
  end
  local grace = math.floor(idle_ms / 16)
  local later = server_ms() + idle_ms + grace
  if not always and ends and later >= ends and later < ends + grace then
    return
  end
  ends = later
  if redis.call('ZADD', idle, ends, name) == 1 then
    redis.call('ZADD', names, 0, name)
  end
  redis.call('HSET', box, 'ends', text(ends))
  for key = 1, 4 do
    if state == '' then
      redis.call('PEXPIREAT', KEYS[key], text(ends))
    else
      redis.call('PERSIST', KEYS[key])
    end
  end
end

-- An epoch beyond all that this server, this box and this process have seen.
local function new_epoch()
  local last = redis.call('GET', epochs) or '0'
  for _, seen in ipairs({epoch or '0', known_epoch}) do
    if is_larger(seen, last) then
      last = seen
    end
  end
  if is_larger(candidate, last) then
    redis.call('SET', epochs, candidate)
  else
    -- A clock is behind. Not by one: the server may have forgotten a later epoch that was made in the same way.
    redis.call('SET', epochs, last)
    redis.call('INCRBY', epochs, 1 + string.sub(candidate, -6))
  end
  return redis.call('GET', epochs)
end

local function write()
  redis.call('HSET', box, 'epoch', epoch, 'run', box_run, 'forks', forks, 'next', text(next), 'lost', text(lost),
    'read', text(read), 'bytes', text(bytes), 'count', text(count))
end

local function box_of(other)
  return string.sub(box, 1, #box - #name) .. other
end

-- Forgets the name of a box; whether it was known.
local function forget(other)
  redis.call('ZREM', names, other)
  redis.call('ZREM', unused, other)
  return redis.call('ZREM', idle, other)
end

-- Removes a stream, and those that it inherits from if they were there for it only. One with heirs stays, as removed.
local function end_stream(other)
  while other do
    local found = redis.call('HMGET', box_of(other), 'heirs', 'source', 'source_id')
    if tonumber(found[1] or 0) > 0 then
      redis.call('HSET', box_of(other), 'removed', 1)
      redis.call('ZADD', idle, 2 ^ 52, other)
      return
    end
    for key = 1, 4 do
      redis.call('DEL', string.sub(KEYS[key], 1, #KEYS[key] - #name) .. other)
    end
    forget(other)
    other = found[2]
    if other then
      local source = box_of(other)
      if redis.call('HGET', source, 'id') ~= found[3] or redis.call('HINCRBY', source, 'heirs', -1) > 0
        or not redis.call('HGET', source, 'removed') then
        other = nil
      end
    end
  end
end

-- Forgets boxes whose time was over; their number.
local function prune(count_max)
  local pruned = 0
  for _, ended in ipairs(redis.call('ZRANGEBYSCORE', idle, '-inf', server_ms(), 'LIMIT', 0, count_max)) do
    if redis.call('EXISTS', box_of(ended)) == 0 then
      pruned = pruned + forget(ended)
    elseif redis.call('HEXISTS', box_of(ended), 'state') == 1 then
      end_stream(ended)
      pruned = pruned + 1
    end
  end
  return pruned
end

-- Notes whether the process receives from a box that has never had a message: from when on it may give way to others. A process
-- that has ended does not say so: its note holds for half of the idle time, and processes renew theirs earlier.
local function watch(is_watched)
  if not redis.call('ZSCORE', unused, name) then
    return
  end
  local note, now = 'watch ' .. process, server_ms()
  redis.call('HDEL', box, note)
  if is_watched == '1' then
    redis.call('HSET', box, note, text(now + idle_ms / 2))
  end
  local values, from = redis.call('HGETALL', box), now
  for field = 1, #values, 2 do
    if string.find(values[field], '^watch ') then
      from = math.max(from, values[field + 1])
    end
  end
  redis.call('ZADD', unused, text(from), name)
end

-- Has the box give way that was unused for longest; whether there is one.
local function give_way()
  local other = redis.call('ZRANGEBYSCORE', unused, '-inf', server_ms(), 'LIMIT', 0, 1)[1]
  if other then
    redis.call('DEL', box_of(other))
    forget(other)
  end
  return other
end

-- Ids of entries do not have the epoch, so that a new one does not copy the log, which may be long.
local function id_of(number)
  return '0-' .. number
end

local function number_of(id)
  return tonumber(string.match(id, '%-(%d+)$'))
end

-- Keeps the messages that are left, with their numbers, in a new epoch.
local function renew(run)
  epoch = new_epoch()
  if redis.call('XLEN', log) ~= count then
    bytes, count = 0, 0
    for _, entry in ipairs(redis.call('XRANGE', log, '-', '+')) do
      bytes, count, next = bytes + entry[2][4], count + 1, math.max(next, number_of(entry[1]) + 1)
    end
  end
  box_run, forks = run, ''
  write()
  redis.call('PUBLISH', channel, 'outdated ' .. epoch)
end

-- Leaves out the numbers that the server may have given and forgotten, so that no message gets one of them: numbers begin anew
-- with 4096 for each millisecond since September 2020, which is more than there can be messages. False if the clock says less.
local function fork(run)
  local first = (server_ms() - 1600000000000) * 4096
  if first <= next then
    return false
  end
  forks = forks .. text(next) .. '-' .. text(first) .. ' '
  if #forks > 1000 then
    forks = string.match(forks, ' (.*)')
  end
  box_run, next = run, first
  write()
  return true
end

-- Whether the server lacks a message that the process has seen, or one that should be in the log.
local function has_lost()
  if redis.call('XLEN', log) ~= count then
    return true
  end
  if known_epoch ~= epoch then
    return is_larger(known_epoch, epoch)
  end
  for first, after in string.gmatch(forks, '(%d+)-(%d+) ') do
    if known_next > tonumber(first) and known_next < tonumber(after) then
      return true
    end
  end
  return known_next > next
end

-- Whether the box has to be compared before it is read: only scripts that write give it the epoch that says what is lost.
local function lags()
  return box_run ~= (redis.call('LINDEX', runs, -1) or '') or has_lost()
end

-- Continues the box in the present history of the server; whether it needs a new epoch for that.
local function follow()
  local run = redis.call('LINDEX', runs, -1) or ''
  local is_new = has_lost()
  if box_run ~= run and not is_new then
    is_new = not redis.call('LPOS', runs, box_run) or not fork(run)
  end
  if is_new then
    renew(run)
  end
  return is_new
end

-- Makes the box if it is not known; false if there are too many.
local function enter()
  if epoch then
    touch(follow())
    return true
  end
  if redis.call('ZCARD', idle) >= boxes_max and prune(100) == 0 and not give_way() then
    return false
  end
  -- The first write of every script needs memory: if there is none it fails, and nothing is done.
  epoch, box_run = new_epoch(), redis.call('LINDEX', runs, -1) or ''
  redis.call('DEL', log, keys, due)
  next, lost, read, bytes, count = 1, 1, 1, 0, 0
  write()
  touch(true)
  redis.call('ZADD', unused, server_ms(), name)
  return true
end

-- Drops messages whose deadline is not after `now`; their number.
local function expire(now, count_max)
  local expired = 0
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, count_max)) do
    local number, size = string.match(member, '^(%d+):(%d+)$')
    redis.call('ZREM', due, member)
    if redis.call('XDEL', log, id_of(number)) == 1 then
      bytes, count, expired = bytes - size, count - 1, expired + 1
    end
  end
  return expired
end

local function found(first)
  return {epoch, next, lost, read, redis.call('XRANGE', log, id_of(first), '+'), state, removed}
end

-- The first entries after a number, no more than a number and a size, and whether they are all.
local function entries_after(after, messages_max, bytes_max)
  local largest = tonumber(redis.call('HGET', box, 'largest') or 0)
  local first, read_bytes, entries = '(' .. id_of(after), 0, {}
  while #entries < messages_max and read_bytes < bytes_max do
    -- As many as there is room for if all are large: one that is too many is copied as a whole, too.
    local fitting = math.max(1, math.floor((bytes_max - read_bytes) / largest))
    local page_max = math.min(fitting, messages_max - #entries)
    local page = redis.call('XRANGE', log, first, '+', 'COUNT', page_max)
    for _, entry in ipairs(page) do
      table.insert(entries, entry)
      read_bytes, first = read_bytes + entry[2][4], '(' .. entry[1]
    end
    if #page < page_max then
      return entries, true
    end
  end
  return entries, false
end
