-- What is known of a box without its messages; nothing if it is not known.
if not epoch then
  return false
end
return {epoch, next, lost, read, count, bytes, state, removed}
