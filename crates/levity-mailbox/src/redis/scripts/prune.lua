-- Forgets names of boxes whose time was over; their number. Here the name is empty, so that `box` is the common beginning of
-- the keys of all boxes of the set.
return prune(100)
