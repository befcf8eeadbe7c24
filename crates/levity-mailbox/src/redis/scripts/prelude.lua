-- Every script begins with this text. It reads a box, makes it if it is not known, and gives it a new epoch if messages
-- were lost. Numbers of messages are doubles here, which are exact up to 2^53; epochs are larger and stay texts.
local box, log, keys, due, names, idle, epochs = unpack(KEYS)
local run, channel, name, candidate = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- What the process knows of the box: its epoch, its next message, and which run of the server said so.
local known_epoch, known_next, known_run = ARGV[5], tonumber(ARGV[6]), ARGV[7]
local idle_ms, boxes_max = ARGV[8], tonumber(ARGV[9])

-- `run` is the run of the server that has written the box last, `last_run` the one before, and `fork` the next message
-- when the one took over from the other. `ends` is when the idle time ends, by the clock of the server.
local fields = redis.call('HMGET', box, 'epoch', 'run', 'last_run', 'next', 'lost', 'read', 'bytes', 'count', 'fork',
  'ends')
local epoch, box_run, last_run = fields[1], fields[2], fields[3]
local next, lost, read = tonumber(fields[4]), tonumber(fields[5]), tonumber(fields[6])
local bytes, count, fork, ends = tonumber(fields[7]), tonumber(fields[8]), tonumber(fields[9]), tonumber(fields[10])

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

-- Begins the idle time anew, unless it began lately: so it is up to a sixteenth longer. All keys of the box end together.
local function touch(always)
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
    redis.call('PEXPIREAT', KEYS[key], text(ends))
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
    redis.call('SET', epochs, last)
    redis.call('INCR', epochs)
  end
  return redis.call('GET', epochs)
end

local function write()
  redis.call('HSET', box, 'epoch', epoch, 'run', box_run, 'last_run', last_run, 'fork', text(fork),
    'next', text(next), 'lost', text(lost), 'read', text(read), 'bytes', text(bytes), 'count', text(count))
end

-- Forgets names of boxes whose time was over.
local function prune(count_max)
  local pruned = 0
  for _, ended in ipairs(redis.call('ZRANGEBYSCORE', idle, '-inf', server_ms(), 'LIMIT', 0, count_max)) do
    if redis.call('EXISTS', string.sub(box, 1, #box - #name) .. ended) == 0 then
      redis.call('ZREM', names, ended)
      pruned = pruned + redis.call('ZREM', idle, ended)
    end
  end
  return pruned
end

local function number_of(id)
  return tonumber(string.match(id, '%-(%d+)$'))
end

-- Keeps the messages that are left, with their numbers, in a new epoch.
local function renew()
  local kept = redis.call('XRANGE', log, '-', '+')
  epoch = new_epoch()
  redis.call('DEL', log, due)
  bytes, count = 0, 0
  for _, entry in ipairs(kept) do
    local number, size, deadline = number_of(entry[1]), entry[2][4], entry[2][6]
    redis.call('XADD', log, epoch .. '-' .. text(number), unpack(entry[2]))
    if deadline ~= '' then
      redis.call('ZADD', due, deadline, text(number) .. ':' .. size)
    end
    bytes, count, next = bytes + size, count + 1, math.max(next, number + 1)
  end
  box_run, last_run, fork = run, run, next
  write()
  redis.call('PUBLISH', channel, 'outdated ' .. epoch)
end

-- Whether the server lacks a message that the process knows of, or one that should be in the log.
local function has_lost()
  if redis.call('XLEN', log) ~= count then
    return true
  end
  if known_epoch ~= epoch then
    return is_larger(known_epoch, epoch)
  end
  if known_run == run then
    return known_next > next
  end
  return known_run ~= last_run or known_next > fork
end

-- Makes the box if it is not known; false if there are too many.
local function enter()
  if epoch then
    if box_run ~= run then
      box_run, last_run, fork = run, box_run, next
      write()
    end
    local is_new = has_lost()
    if is_new then
      renew()
    end
    touch(is_new)
    return true
  end
  if redis.call('ZCARD', idle) >= boxes_max and prune(100) == 0 then
    return false
  end
  -- The first write of every script needs memory: if there is none it fails, and nothing is done.
  epoch, box_run, last_run = new_epoch(), run, run
  redis.call('DEL', log, keys, due)
  next, lost, read, bytes, count, fork = 1, 1, 1, 0, 0, 1
  write()
  touch(true)
  return true
end

-- Drops messages whose deadline is not after `now`; their number.
local function expire(now, count_max)
  local expired = 0
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, count_max)) do
    local number, size = string.match(member, '^(%d+):(%d+)$')
    redis.call('ZREM', due, member)
    if redis.call('XDEL', log, epoch .. '-' .. number) == 1 then
      bytes, count, expired = bytes - size, count - 1, expired + 1
    end
  end
  return expired
end

local function found(first)
  return {epoch, next, lost, read, redis.call('XRANGE', log, epoch .. '-' .. first, '+')}
end
