-- Replies further: whether clients must send every request to the network (1, 0), how many keys have left, then the tokens
-- of the partitions.
local reply = {calls, lost, number('off'), number('removed')}
local fields = redis.call('HKEYS', meta)
for _, field in ipairs(fields) do
  if string.sub(field, 1, 10) == 'partition:' then reply[#reply + 1] = string.sub(field, 11) end
end
return reply
