-- KEYS bucket. ARGV tokens per_s burst hold_ms. By the server's clock, so that it is one for all. With hold_ms above 0 nobody
-- spends for so long. Returns 0, or for how many ms to wait; then nothing was taken.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local tokens, per_ms, burst, hold = tonumber(ARGV[1]), ARGV[2] / 1000, tonumber(ARGV[3]), tonumber(ARGV[4])
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at', 'held_until')
local held_until = tonumber(kept[3] or 0)
if hold > 0 then
  held_until = math.max(held_until, now + hold)
  redis.call('HSET', KEYS[1], 'tokens', kept[1] or 0, 'at', kept[2] or now, 'held_until', string.format('%.0f', held_until))
  redis.call('PEXPIRE', KEYS[1], hold + 3600000)
  return 0
end
if held_until > now then
  return held_until - now
end
local at = tonumber(kept[2] or now)
local left = math.min(burst, tonumber(kept[1] or burst) + math.max(0, now - at) * per_ms)
local wait = 0
if left >= tokens then
  left = left - tokens
else
  wait = math.ceil((tokens - left) / per_ms)
end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', left), 'at', string.format('%.0f', math.max(at, now)))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / per_ms) + 3600000)
return wait
