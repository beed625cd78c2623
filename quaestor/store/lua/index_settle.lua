-- KEYS dependents until edges claims dead. ARGV id...
local dependents, until_, edges, claims = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
for _, id in ipairs(ARGV) do
  local payload = redis.call('HGET', dependents, id)
  if payload then
    for _, registration in ipairs(cjson.decode(string.sub(payload, 17)).registrations) do
      redis.call('ZREM', edges, registration .. '\0' .. id)
    end
    redis.call('HDEL', dependents, id)
  end
  redis.call('ZREM', until_, id)
  redis.call('ZREM', claims, id)
end
