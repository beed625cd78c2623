-- ARGV 9 digest, 10 expires_at_ms, 11 max_reads.
local digest, expires_at_ms = ARGV[9], ARGV[10]
if tonumber(expires_at_ms) > now_ms then
  if redis.call('ZCARD', reads) - 1 < tonumber(ARGV[11]) or redis.call('ZSCORE', reads, digest) then
    redis.call('ZADD', reads, 'GT', expires_at_ms, digest)
  else
    raise('untracked_until_ms', expires_at_ms)
  end
end
return {calls, lost}
