-- The messages of a box from a number on; nothing if it is not known any more. Those of a stream, which may be many, are read
-- elsewhere.
if not epoch then
  return false
end
enter()
return found(state == '' and ARGV[9] or text(next))
