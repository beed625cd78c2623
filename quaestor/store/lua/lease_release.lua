-- KEYS lease. ARGV holder, uncoalesced_ms (time in which nobody needs a lease; 0: the next caller takes the lease).
if redis.call('GET', KEYS[1]) == ARGV[1] then
  if tonumber(ARGV[2]) > 0 then
    redis.call('SET', KEYS[1], 'solo', 'PX', ARGV[2])
  else
    redis.call('DEL', KEYS[1])
  end
end
