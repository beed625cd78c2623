-- KEYS dependents until edges claims dead caller. ARGV caller_lives_ms max_dependents id payload copies_until_ms registration...
-- Adds a dependent. Returns this caller's number of calls, then 1, or 0 if the index is full.
local calls = redis.call('INCR', KEYS[6])
redis.call('PEXPIRE', KEYS[6], ARGV[1])
local dependents, until_, edges, claims, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, payload, copies_until_ms = ARGV[3], ARGV[4], ARGV[5]
if redis.call('HLEN', dependents) >= tonumber(ARGV[2]) and redis.call('HEXISTS', dependents, id) == 0 then
  return {calls, 0}
end
redis.call('HSET', dependents, id, payload)
redis.call('ZADD', until_, 'GT', copies_until_ms, id)
for i = 6, #ARGV do
  redis.call('ZADD', edges, 0, ARGV[i] .. '\0' .. id)
  if redis.call('ZSCORE', dead, ARGV[i]) then
    redis.call('ZADD', claims, 0, id)
  end
end
return {calls, 1}
