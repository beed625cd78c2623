-- ARGV 8 digest, 9 expires_at_ms, 10 max_reads. Returns the epoch.
local digest, expires_at_ms = ARGV[8], ARGV[9]
if tonumber(expires_at_ms) > now_ms then
  if redis.call('ZCARD', reads) - 1 < tonumber(ARGV[10]) or redis.call('ZSCORE', reads, digest) then
    redis.call('ZADD', reads, 'GT', expires_at_ms, digest)
  else
    raise('untracked_until_ms', expires_at_ms)
  end
end
return {epoch}
