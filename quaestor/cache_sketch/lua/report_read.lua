-- ARGV 10 key, 11 expires_at_ms, 12 max_reads.
local key, expires_at_ms = ARGV[10], ARGV[11]
if tonumber(expires_at_ms) > now_ms then
  if redis.call('ZCARD', reads) - 1 < tonumber(ARGV[12]) or redis.call('ZSCORE', reads, key) then
    redis.call('ZADD', reads, 'GT', expires_at_ms, key)
  else
    raise('untracked_until_ms', expires_at_ms)
  end
end
return {calls, lost}
