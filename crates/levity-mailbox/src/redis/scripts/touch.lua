-- Begins the idle time of a box anew; whether the box is known.
if not epoch then
  return 0
end
touch(true)
return 1
