-- KEYS waiting taken age about dead buried. ARGV what now_ms argument count {token member until_ms attempts}... {phase due_ms}...
-- what: done (argument unused), retry (argument: due_ms), release (due_ms, or since when it is open if that is earlier), renew (argument: lease_until_ms), bury (argument: reason).
local waiting, taken, age, about, dead, buried = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local what, now, argument, count = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local last = 4 + 4 * count
for i = 5, last, 4 do
  local member, until_ms, attempts = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local held = ARGV[i] .. '|' .. member
  if what == 'renew' then
    redis.call('ZADD', taken, 'XX', argument, held)
  else
    local mine = redis.call('ZREM', taken, held) == 1
    local open = redis.call('ZSCORE', waiting, member)
    if what == 'retry' or what == 'release' then
      if mine then
        local due = tonumber(argument)
        if what == 'release' then
          due = math.min(due, tonumber(redis.call('ZSCORE', age, member) or now))
        end
        local _, known = string.match(redis.call('HGET', about, member) or '0 0', '^(%d+) (%d+)$')
        redis.call('ZADD', waiting, 'NX', due, member)
        local latest = string.format('%.0f', math.max(tonumber(until_ms), tonumber(known)))
        redis.call('HSET', about, member, attempts .. ' ' .. latest)
      end
    else
      if not open then
        redis.call('ZREM', age, member)
        redis.call('HDEL', about, member)
      end
      if what == 'bury' then
        redis.call('HSET', dead, member, until_ms .. ' ' .. argument)
        redis.call('ZADD', buried, now, member)
        for _, old in ipairs(redis.call('ZRANGE', buried, 0, -10001)) do
          redis.call('ZREM', buried, old)
          redis.call('HDEL', dead, old)
        end
      elseif string.sub(member, 1, 1) == '0' then
        for j = last + 1, #ARGV, 2 do
          local due = tonumber(ARGV[j + 1])
          if due < tonumber(until_ms) then
            local later = ARGV[j] .. string.sub(member, 2)
            redis.call('ZADD', waiting, 'GT', due, later)
            redis.call('HSET', about, later, '0 ' .. until_ms)
          end
        end
      end
    end
  end
end
return 1
