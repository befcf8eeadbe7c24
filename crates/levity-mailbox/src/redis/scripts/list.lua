-- Boxes of a set after a name, each with the number and the size of its messages. As in prune.lua, the name is empty.
local after, count_max, listed = ARGV[9], tonumber(ARGV[10]), {}
while #listed < count_max do
  local page = redis.call('ZRANGEBYLEX', names, after, '+', 'LIMIT', 0, count_max)
  for _, member in ipairs(page) do
    local found = redis.call('HMGET', box .. member, 'epoch', 'next', 'lost', 'read', 'count', 'bytes')
    after = '(' .. member
    if found[1] and #listed < count_max then
      table.insert(listed, {member, unpack(found)})
    end
  end
  if #page < count_max then
    break
  end
end
return listed
