-- What is kept of a box, which is made if it is not known.
if not enter() then
  return {'too many'}
end
watch(ARGV[9])
-- Receivers of a stream read elsewhere what was there before.
return found(ARGV[10] == '1' and text(next) or '0')
