-- KEYS waiting taken age about. ARGV token count lease_until_ms now_ms. Returns the number of expired members, then member,
-- put_at_ms, attempts and until_ms of each member taken. The number of commands does not depend on the number of members.
local waiting, taken, age, about = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, count, now = ARGV[1], tonumber(ARGV[2]), ARGV[4]
local over = redis.call('ZRANGEBYSCORE', taken, '-inf', now, 'LIMIT', 0, count)
if #over > 0 then
  local back = {}
  for i, one in ipairs(over) do
    back[2 * i - 1], back[2 * i] = now, string.sub(one, string.find(one, '|', 1, true) + 1)
  end
  redis.call('ZREM', taken, unpack(over))
  redis.call('ZADD', waiting, 'LT', unpack(back))
end
local reply = {0}
local due = redis.call('ZRANGEBYSCORE', waiting, '-inf', now, 'LIMIT', 0, count)
if #due == 0 then
  return reply
end
redis.call('ZREM', waiting, unpack(due))
local known = redis.call('HMGET', about, unpack(due))
local since = redis.call('ZMSCORE', age, unpack(due))
local held, outlived = {}, {}
for i, member in ipairs(due) do
  -- A member without a record was forgotten along with another taker's copy of it: one purge too many is better than none.
  local told = known[i] or '0 ' .. string.format('%.0f', tonumber(now) + 3600000)
  local attempts, until_ms = string.match(told, '^(%d+) (%d+)$')
  if tonumber(until_ms) <= tonumber(now) then
    outlived[#outlived + 1] = member
  else
    held[#held + 1] = ARGV[3]
    held[#held + 1] = token .. '|' .. member
    reply[#reply + 1] = member
    reply[#reply + 1] = since[i] or now
    reply[#reply + 1] = attempts
    reply[#reply + 1] = until_ms
  end
end
if #outlived > 0 then
  reply[1] = #outlived
  redis.call('ZREM', age, unpack(outlived))
  redis.call('HDEL', about, unpack(outlived))
end
if #held > 0 then
  redis.call('ZADD', taken, unpack(held))
end
return reply
