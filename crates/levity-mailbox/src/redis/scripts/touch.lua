-- Begins the idle time of a box anew, and notes whether the process receives from it; whether the box is known.
if not epoch then
  return 0
end
touch(true)
watch(ARGV[9])
return 1
