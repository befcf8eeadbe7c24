-- What is kept of a box, which is made if it is not known.
if not enter() then
  return {'too many'}
end
watch(ARGV[9])
return found('0')
