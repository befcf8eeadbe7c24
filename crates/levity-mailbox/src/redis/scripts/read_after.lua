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
local entries = entries_after(after, messages_max, bytes_max)
return {epoch, next, lost, read, entries, state, removed}
