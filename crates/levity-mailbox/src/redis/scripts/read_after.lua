-- What is kept of a box, but of its messages only the first ones after one, no more than a number and a size; nothing if the
-- box is not known.
if not epoch then
  return false
end
local after, messages_max, bytes_max = ARGV[10], tonumber(ARGV[11]), tonumber(ARGV[12])
if ARGV[9] ~= epoch then
  after = '0'
end
local first, read_bytes, entries = '(' .. epoch .. '-' .. after, 0, {}
while #entries < messages_max and read_bytes < bytes_max do
  local page = redis.call('XRANGE', log, first, '+', 'COUNT', math.min(16, messages_max - #entries))
  for _, entry in ipairs(page) do
    if read_bytes < bytes_max then
      table.insert(entries, entry)
      read_bytes = read_bytes + entry[2][4]
    end
  end
  if #page < 16 then
    break
  end
  first = '(' .. page[#page][1]
end
return {epoch, next, lost, read, entries, state, removed}
