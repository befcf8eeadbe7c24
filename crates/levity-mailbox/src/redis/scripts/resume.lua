-- The messages of a box from a number on; nothing if it is not known any more.
if not epoch then
  return false
end
enter()
return found(ARGV[9])
