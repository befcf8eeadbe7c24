-- What is known of a box without its messages; nothing if it is not known, and a text if `check.lua` has to be called first.
if not epoch then
  return false
end
if lags() then
  return 'lags'
end
return {epoch, next, lost, read, count, bytes, state, removed}
