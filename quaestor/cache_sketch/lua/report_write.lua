-- ARGV 9 max_stale, 10 digest ... Replies further: the remaining lifetime in ms of each.
local max_stale = tonumber(ARGV[9])
local untracked_until_ms, saturated_until_ms = number('untracked_until_ms'), number('saturated_until_ms')
local reply = {calls, lost}
for i = 10, #ARGV do
  local digest = ARGV[i]
  local alive_until_ms = math.max(tonumber(redis.call('ZSCORE', reads, digest) or '0'), untracked_until_ms)
  if alive_until_ms > now_ms then
    local known = redis.call('ZSCORE', stale, digest)
    if known or redis.call('ZCARD', stale) - 1 < max_stale then
      redis.call('ZADD', stale, 'GT', alive_until_ms, digest)
      if not known then count(digest, 1) end
    elseif alive_until_ms > saturated_until_ms then
      saturated_until_ms = alive_until_ms
      redis.call('HSET', meta, 'saturated_until_ms', saturated_until_ms)
    end
  end
  reply[#reply + 1] = math.max(0, math.max(alive_until_ms, saturated_until_ms) - now_ms)
end
return reply
