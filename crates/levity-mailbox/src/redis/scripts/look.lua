-- What is kept of a box; nothing if it is not known.
if not epoch then
  return false
end
return found('0')
