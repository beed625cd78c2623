-- KEYS count. ARGV number most kept_ms. Adds number to the count. Returns 1, or 0 if the count would exceed most; the count is
-- unchanged then.
if tonumber(redis.call('GET', KEYS[1]) or 0) + ARGV[1] > tonumber(ARGV[2]) then
  return 0
end
redis.call('INCRBY', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
