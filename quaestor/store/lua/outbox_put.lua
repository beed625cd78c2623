-- KEYS queues waiting taken age about until put. ARGV queue now_ms until_ms token lease_until_ms most member...
-- Returns 1, or 0 if there are too many.
local queues, waiting, taken, age, about = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now, until_ms, token = ARGV[2], tonumber(ARGV[3]), ARGV[4]
if redis.call('ZCARD', waiting) + redis.call('ZCARD', taken) + #ARGV - 6 > tonumber(ARGV[6]) then
  return 0
end
redis.call('SADD', queues, ARGV[1])
if until_ms > tonumber(redis.call('GET', KEYS[6]) or 0) then
  redis.call('SET', KEYS[6], ARGV[3], 'PXAT', ARGV[3])
end
local new = 0
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
    new = new + 1
  else
    new = new + redis.call('ZADD', waiting, 'LT', now, member)
  end
end
local minute = math.floor(now / 60000)
local before, number = string.match(redis.call('HGET', KEYS[7], minute % 60) or '0 0', '^(%d+) (%d+)$')
if tonumber(before) ~= minute then
  number = 0
end
redis.call('HSET', KEYS[7], minute % 60, string.format('%.0f %.0f', minute, number + new))
redis.call('PEXPIRE', KEYS[7], 3600000)
return 1
