-- KEYS waiting taken age about. ARGV token count lease_until_ms now_ms. Returns how many were outlived, then member, put_at_ms,
-- attempts and until_ms of each that was taken.
local waiting, taken, age, about = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, count, now = ARGV[1], tonumber(ARGV[2]), ARGV[4]
for _, one in ipairs(redis.call('ZRANGEBYSCORE', taken, '-inf', now, 'LIMIT', 0, count)) do
  redis.call('ZREM', taken, one)
  redis.call('ZADD', waiting, 'LT', now, string.sub(one, string.find(one, '|', 1, true) + 1))
end
local reply = {0}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', waiting, '-inf', now, 'LIMIT', 0, count)) do
  redis.call('ZREM', waiting, member)
  -- What is not known of it was forgotten with another taker's copy of the same: purged rather once more than not.
  local known = redis.call('HGET', about, member) or '0 ' .. string.format('%.0f', tonumber(now) + 3600000)
  local attempts, until_ms = string.match(known, '^(%d+) (%d+)$')
  if tonumber(until_ms) <= tonumber(now) then
    redis.call('ZREM', age, member)
    redis.call('HDEL', about, member)
    reply[1] = reply[1] + 1
  else
    redis.call('ZADD', taken, ARGV[3], token .. '|' .. member)
    reply[#reply + 1] = member
    reply[#reply + 1] = redis.call('ZSCORE', age, member) or now
    reply[#reply + 1] = attempts
    reply[#reply + 1] = until_ms
  end
end
return reply
