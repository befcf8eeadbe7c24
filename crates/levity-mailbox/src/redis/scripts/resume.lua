-- The messages of a box from a number on; nothing if it is not known any more. Those of a stream may be many: then they count as
-- lost, and its receivers read them elsewhere. A few are returned: a busy stream would always have a new one.
if not epoch then
  return false
end
enter()
if state == '' then
  return found(ARGV[9])
end
local entries, are_all = entries_after(text(ARGV[9] - 1), 1000, 2 ^ 20)
return {epoch, next, are_all and lost or next, read, are_all and entries or {}, state, removed}
