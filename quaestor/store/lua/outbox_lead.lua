-- KEYS sender. ARGV token lease_ms; lease_ms 0: give the lease up. Returns 1 if this token holds the lease.
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then
  return 0
end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
