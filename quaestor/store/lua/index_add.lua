-- KEYS dependents until edges claims dead. ARGV id payload copies_until_ms registration...
local dependents, until_, edges, claims, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, payload, copies_until_ms = ARGV[1], ARGV[2], ARGV[3]
redis.call('HSET', dependents, id, payload)
redis.call('ZADD', until_, 'GT', copies_until_ms, id)
for i = 4, #ARGV do
  redis.call('ZADD', edges, 0, ARGV[i] .. '\0' .. id)
  if redis.call('ZSCORE', dead, ARGV[i]) then
    redis.call('ZADD', claims, 0, id)
  end
end
