-- Compares the box with what the process has seen of it.
if epoch then
  follow()
end
return 1
