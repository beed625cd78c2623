-- claim(): a fragment for the scripts that follow. Keys: see quaestor/store/index_redis.py.
-- Returns {payload, copies_until_ms} of each claimed dependent. Dependents with an earlier claim are left out.

-- Claims the free dependents among these ids. At most a thousand ids, because Lua's unpack limits the values of one command.
local function claim_some(keys, ids, now_ms, claimed)
  local dependents, until_, claims = keys[1], keys[2], keys[4]
  local free = {}
  for i, claimed_at_ms in ipairs(redis.call('ZMSCORE', claims, unpack(ids))) do
    if not claimed_at_ms or tonumber(claimed_at_ms) == 0 then free[#free + 1] = ids[i] end
  end
  if #free == 0 then return end
  local untils, mine = redis.call('ZMSCORE', until_, unpack(free)), {}
  for i, payload in ipairs(redis.call('HMGET', dependents, unpack(free))) do
    if payload then
      mine[#mine + 1] = now_ms
      mine[#mine + 1] = free[i]
      claimed[#claimed + 1] = {payload, untils[i]}
    end
  end
  if #mine > 0 then redis.call('ZADD', claims, unpack(mine)) end
end

local function claim(keys, registrations, now_ms, forget_dead_before_ms, max_dead)
  local edges, dead = keys[3], keys[5]
  local claimed, known, ids = {}, {}, {}
  for _, registration in ipairs(registrations) do
    redis.call('ZADD', dead, now_ms, registration)
    local found = redis.call('ZRANGEBYLEX', edges, '[' .. registration .. '\0', '(' .. registration .. '\1')
    for _, edge in ipairs(found) do
      local id = string.sub(edge, #registration + 2)
      if not known[id] then
        known[id] = true
        ids[#ids + 1] = id
        if #ids == 1000 then
          claim_some(keys, ids, now_ms, claimed)
          ids = {}
        end
      end
    end
  end
  if #ids > 0 then claim_some(keys, ids, now_ms, claimed) end
  redis.call('ZREMRANGEBYSCORE', dead, '-inf', '(' .. forget_dead_before_ms)
  redis.call('ZREMRANGEBYRANK', dead, 0, -1 - tonumber(max_dead))
  return claimed
end
