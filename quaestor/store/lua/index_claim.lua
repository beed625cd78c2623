-- KEYS dependents until edges claims dead. ARGV now_ms forget_dead_before_ms registration...
-- Returns payload and copies_until_ms of each dependent claimed, in turns.
local dependents, until_, edges, claims, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now_ms = ARGV[1]
local reply = {}
for i = 3, #ARGV do
  local registration = ARGV[i]
  redis.call('ZADD', dead, now_ms, registration)
  local found = redis.call('ZRANGEBYLEX', edges, '[' .. registration .. '\0', '(' .. registration .. '\1')
  for _, edge in ipairs(found) do
    local id = string.sub(edge, #registration + 2)
    local claimed_at_ms = redis.call('ZSCORE', claims, id)
    if not claimed_at_ms or tonumber(claimed_at_ms) == 0 then
      local payload = redis.call('HGET', dependents, id)
      if payload then
        redis.call('ZADD', claims, now_ms, id)
        reply[#reply + 1] = payload
        reply[#reply + 1] = redis.call('ZSCORE', until_, id)
      end
    end
  end
end
redis.call('ZREMRANGEBYSCORE', dead, '-inf', '(' .. ARGV[2])
return reply
