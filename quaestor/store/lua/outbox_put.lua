-- KEYS queues waiting taken age about. ARGV queue now_ms until_ms token lease_until_ms most member...
-- Returns 1, or 0 if there are too many.
local queues, waiting, taken, age, about = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now, until_ms, token = ARGV[2], tonumber(ARGV[3]), ARGV[4]
if redis.call('ZCARD', waiting) + redis.call('ZCARD', taken) + #ARGV - 6 > tonumber(ARGV[6]) then
  return 0
end
redis.call('SADD', queues, ARGV[1])
for i = 7, #ARGV do
  local member = ARGV[i]
  redis.call('ZADD', age, 'NX', now, member)
  local known = redis.call('HGET', about, member)
  local attempts, before = 0, 0
  if known then
    local a, b = string.match(known, '^(%d+) (%d+)$')
    attempts, before = a, tonumber(b)
  end
  redis.call('HSET', about, member, attempts .. ' ' .. string.format('%.0f', math.max(before, until_ms)))
  if token ~= '' then
    redis.call('ZADD', taken, ARGV[5], token .. '|' .. member)
  else
    redis.call('ZADD', waiting, 'LT', now, member)
  end
end
return 1
