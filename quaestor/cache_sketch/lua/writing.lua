-- A fragment with written() for the scripts that follow. Puts a key into the filter until its copies are dead, and returns the
-- remaining life of the longest-lived copy in ms.
local untracked_until_ms, saturated_until_ms = number('untracked_until_ms'), number('saturated_until_ms')
local function written(key, max_stale)
  local alive_until_ms = math.max(tonumber(redis.call('ZSCORE', reads, key) or '0'), untracked_until_ms)
  if alive_until_ms > now_ms then
    local known = redis.call('ZSCORE', stale, key)
    if known or redis.call('ZCARD', stale) - 1 < max_stale then
      redis.call('ZADD', stale, 'GT', alive_until_ms, key)
      if not known then count(key, 1) end
    elseif alive_until_ms > saturated_until_ms then
      saturated_until_ms = alive_until_ms
      redis.call('HSET', meta, 'saturated_until_ms', saturated_until_ms)
    end
  end
  return math.max(0, math.max(alive_until_ms, saturated_until_ms, behind_until_ms) - now_ms)
end
