-- Follows writing.lua. ARGV 10 max_stale, 11 key ... Replies further: the remaining lifetime in ms of each key's copies.
local reply = {calls, lost}
for i = 11, #ARGV do
  reply[#reply + 1] = written(ARGV[i], tonumber(ARGV[10]))
end
return reply
