-- KEYS waiting taken age about dead buried. ARGV what now_ms argument {token member until_ms attempts}...
-- what: retry (argument: due_ms), release (argument: due_ms; the time of the put counts if earlier), renew (argument:
-- lease_until_ms), bury (argument: reason).
local waiting, taken, age, about, dead, buried = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local what, now, argument = ARGV[1], tonumber(ARGV[2]), ARGV[3]
for i = 4, #ARGV, 4 do
  local member, until_ms, attempts = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local held = ARGV[i] .. '|' .. member
  if what == 'renew' then
    redis.call('ZADD', taken, 'XX', argument, held)
  else
    local mine = redis.call('ZREM', taken, held) == 1
    if what == 'bury' then
      if not redis.call('ZSCORE', waiting, member) then
        redis.call('ZREM', age, member)
        redis.call('HDEL', about, member)
      end
      redis.call('HSET', dead, member, until_ms .. ' ' .. argument)
      redis.call('ZADD', buried, now, member)
      for _, old in ipairs(redis.call('ZRANGE', buried, 0, -10001)) do
        redis.call('ZREM', buried, old)
        redis.call('HDEL', dead, old)
      end
    elseif mine then
      local due = tonumber(argument)
      if what == 'release' then
        due = math.min(due, tonumber(redis.call('ZSCORE', age, member) or now))
      end
      local _, known = string.match(redis.call('HGET', about, member) or '0 0', '^(%d+) (%d+)$')
      redis.call('ZADD', waiting, 'NX', due, member)
      local latest = string.format('%.0f', math.max(tonumber(until_ms), tonumber(known)))
      redis.call('HSET', about, member, attempts .. ' ' .. latest)
    end
  end
end
return 1
