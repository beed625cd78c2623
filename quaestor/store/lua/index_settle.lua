-- KEYS dependents until edges claims dead. ARGV number of ids, id..., edge...
-- Forgets dependents with all their edges. Works by the thousand, because Lua's unpack limits the values of one command.
local dependents, until_, edges, claims = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local last = 1 + tonumber(ARGV[1])
for i = 2, last, 1000 do
  local to = math.min(i + 999, last)
  redis.call('HDEL', dependents, unpack(ARGV, i, to))
  redis.call('ZREM', until_, unpack(ARGV, i, to))
  redis.call('ZREM', claims, unpack(ARGV, i, to))
end
for i = last + 1, #ARGV, 1000 do
  redis.call('ZREM', edges, unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
