-- KEYS bucket. ARGV what payer tokens per_s burst for_ms. The server's clock counts, the same for all callers.
-- what: spend (for_ms: longest time of a request under way), sent or unsent (this payer's tokens are no longer under way), hold
-- (for_ms: nobody may spend for this time).
-- Returns 0. For spend, a number above 0 is the time to wait in ms; no tokens were spent then.
--
-- Field `tokens`: tokens left at the time `at`, in us.
-- Field `paid <payer>`: "<tokens> <until, in us>" of a request under way. The provider counts the request at some moment in this
-- time and refills its own bucket only from that moment. This bucket therefore lacks these tokens until the request is settled.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local what, payer = ARGV[1], 'paid ' .. ARGV[2]
local tokens, per_us, burst, for_ms = tonumber(ARGV[3]), ARGV[4] / 1000000, tonumber(ARGV[5]), tonumber(ARGV[6])
local flat, kept = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #flat, 2 do
  kept[flat[i]] = flat[i + 1]
end

local under_way, over = 0, {}
for name, value in pairs(kept) do
  if string.sub(name, 1, 5) == 'paid ' then
    local amount, until_us = string.match(value, '^(%S+) (%d+)$')
    under_way = under_way + amount
    if tonumber(until_us) <= now then
      over[#over + 1] = name
    end
  end
end
local at = tonumber(kept.at or now)
local left = math.min(burst - under_way, tonumber(kept.tokens or burst) + math.max(0, now - at) * per_us)
if #over > 0 then
  redis.call('HDEL', KEYS[1], unpack(over))
end

local wait = 0
local held_until = tonumber(kept.held_until or 0)
if what == 'hold' then
  left = 0
  held_until = math.max(held_until, now + for_ms * 1000)
  redis.call('HSET', KEYS[1], 'held_until', string.format('%.0f', held_until))
elseif what ~= 'spend' then
  local amount = tonumber(string.match(kept[payer] or '0', '^%S+'))
  redis.call('HDEL', KEYS[1], payer)
  if what == 'unsent' then
    left = math.min(burst - under_way + amount, left + amount)
  end
elseif held_until > now then
  wait = math.ceil((held_until - now) / 1000)
elseif left >= tokens then
  left = left - tokens
  redis.call('HSET', KEYS[1], payer, ARGV[3] .. ' ' .. string.format('%.0f', now + for_ms * 1000))
else
  wait = math.max(1, math.ceil((tokens - left) / per_us / 1000))
end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.17g', left), 'at', string.format('%.0f', math.max(at, now)))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / per_us / 1000) + for_ms + 3600000)
return wait
