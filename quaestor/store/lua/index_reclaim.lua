-- KEYS dependents until edges claims dead caller. ARGV caller_lives_ms claimed_before_ms now_ms sweep
-- Renews claims from before claimed_before_ms, at most `sweep` of them. Forgets at most `sweep` dependents without live copies and
-- without a claim.
-- Returns this caller's number of calls, 1 if there may be more to do (else 0), then payload and copies_until_ms of each renewed
-- dependent, alternately.
local dependents, until_, edges, claims = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local calls = redis.call('INCR', KEYS[6])
redis.call('PEXPIRE', KEYS[6], ARGV[1])
local now_ms = ARGV[3]
local limit, forgotten, reply = tonumber(ARGV[4]), 0, {calls, 0}
local late = redis.call('ZRANGEBYSCORE', claims, '-inf', '(' .. ARGV[2], 'LIMIT', 0, limit)
for _, id in ipairs(late) do
  local payload = redis.call('HGET', dependents, id)
  if payload then
    redis.call('ZADD', claims, now_ms, id)
    reply[#reply + 1] = payload
    reply[#reply + 1] = redis.call('ZSCORE', until_, id)
  else
    redis.call('ZREM', claims, id)
  end
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', until_, '-inf', '(' .. now_ms, 'LIMIT', 0, limit)) do
  if not redis.call('ZSCORE', claims, id) then
    local payload = redis.call('HGET', dependents, id)
    if payload then
      for _, registration in ipairs(cjson.decode(string.sub(payload, 17)).registrations) do
        redis.call('ZREM', edges, registration .. '\0' .. id)
      end
      redis.call('HDEL', dependents, id)
    end
    redis.call('ZREM', until_, id)
    forgotten = forgotten + 1
  end
end
if #late == limit or forgotten == limit then reply[2] = 1 end
return reply
