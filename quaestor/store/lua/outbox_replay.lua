-- KEYS waiting age about dead buried. ARGV now_ms. Puts dead letters back. Returns the number of dead letters that wait again.
local waiting, age, about, dead, buried = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local members = redis.call('ZRANGE', buried, 0, -1)
for _, member in ipairs(members) do
  local until_ms = string.match(redis.call('HGET', dead, member) or '0', '^(%d+)')
  redis.call('ZADD', waiting, 'LT', ARGV[1], member)
  redis.call('ZADD', age, 'NX', ARGV[1], member)
  redis.call('HSET', about, member, '0 ' .. until_ms)
end
redis.call('DEL', dead, buried)
return #members
