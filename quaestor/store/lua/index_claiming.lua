-- A fragment: claim() for scripts that follow. Keys: see quaestor/store/index_redis.py.
-- Returns {payload, copies_until_ms} of each dependent claimed. A dependent that is somebody's claim already is passed over.
local function claim(keys, registrations, now_ms, forget_dead_before_ms, max_dead)
  local dependents, until_, edges, claims, dead = unpack(keys)
  local claimed = {}
  for _, registration in ipairs(registrations) do
    redis.call('ZADD', dead, now_ms, registration)
    local found = redis.call('ZRANGEBYLEX', edges, '[' .. registration .. '\0', '(' .. registration .. '\1')
    for _, edge in ipairs(found) do
      local id = string.sub(edge, #registration + 2)
      local claimed_at_ms = redis.call('ZSCORE', claims, id)
      if not claimed_at_ms or tonumber(claimed_at_ms) == 0 then
        local payload = redis.call('HGET', dependents, id)
        if payload then
          redis.call('ZADD', claims, now_ms, id)
          claimed[#claimed + 1] = {payload, redis.call('ZSCORE', until_, id)}
        end
      end
    end
  end
  redis.call('ZREMRANGEBYSCORE', dead, '-inf', '(' .. forget_dead_before_ms)
  redis.call('ZREMRANGEBYRANK', dead, 0, -1 - tonumber(max_dead))
  return claimed
end
