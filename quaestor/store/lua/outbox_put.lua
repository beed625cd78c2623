-- KEYS queues waiting taken age about until put. ARGV queue now_ms until_ms token lease_until_ms most member...
-- Returns 1, or 0 if the queue would exceed `most`. The number of commands does not depend on the number of members.
local queues, waiting, taken, age, about = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now, until_ms, token = ARGV[2], tonumber(ARGV[3]), ARGV[4]
local count = #ARGV - 6
if redis.call('ZCARD', waiting) + redis.call('ZCARD', taken) + count > tonumber(ARGV[6]) then
  return 0
end
redis.call('SADD', queues, ARGV[1])
if until_ms > tonumber(redis.call('GET', KEYS[6]) or 0) then
  redis.call('SET', KEYS[6], ARGV[3], 'PXAT', ARGV[3])
end
local since, told, put = {}, {}, {}
for i, known in ipairs(redis.call('HMGET', about, unpack(ARGV, 7))) do
  local member, attempts, before = ARGV[i + 6], 0, 0
  if known then
    local a, b = string.match(known, '^(%d+) (%d+)$')
    attempts, before = a, tonumber(b)
  end
  since[2 * i - 1], since[2 * i] = now, member
  told[2 * i - 1], told[2 * i] = member, attempts .. ' ' .. string.format('%.0f', math.max(before, until_ms))
  if token ~= '' then
    put[2 * i - 1], put[2 * i] = ARGV[5], token .. '|' .. member
  end
end
redis.call('ZADD', age, 'NX', unpack(since))
redis.call('HSET', about, unpack(told))
local new = count
if token ~= '' then
  redis.call('ZADD', taken, unpack(put))
else
  new = redis.call('ZADD', waiting, 'LT', unpack(since))
end
local minute = math.floor(now / 60000)
local before, number = string.match(redis.call('HGET', KEYS[7], minute % 60) or '0 0', '^(%d+) (%d+)$')
if tonumber(before) ~= minute then
  number = 0
end
redis.call('HSET', KEYS[7], minute % 60, string.format('%.0f %.0f', minute, number + new))
redis.call('PEXPIRE', KEYS[7], 3600000)
return 1
