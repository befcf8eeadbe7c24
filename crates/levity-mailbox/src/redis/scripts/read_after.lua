-- What is kept of a box, but of its messages only the first ones after one, no more than a number and a size; nothing if the
-- box is not known, and a text if `check.lua` has to be called first.
if not epoch then
  return false
end
if lags() then
  return 'lags'
end
local after, messages_max, bytes_max = ARGV[10], tonumber(ARGV[11]), tonumber(ARGV[12])
if ARGV[9] ~= epoch then
  after = '0'
end
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
    break
  end
end
return {epoch, next, lost, read, entries, state, removed}
