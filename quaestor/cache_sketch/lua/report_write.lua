-- After writing. ARGV 9 max_stale, 10 digest ... Replies further: the remaining lifetime in ms of each.
local reply = {calls, lost}
for i = 10, #ARGV do
  reply[#reply + 1] = written(ARGV[i], tonumber(ARGV[9]))
end
return reply
