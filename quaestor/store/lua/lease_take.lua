-- The entry, or else whose turn it is to fetch it.
-- KEYS entry lease. ARGV holder, lease_ms, last byte to read, first and last byte of an entry's identity, 1 if an entry is to
-- be passed over, and that one's identity. Returns {1, entry}, or {0, 'mine' | 'theirs' | 'solo'}.
local entry, lease = KEYS[1], KEYS[2]
local holder = ARGV[1]
if redis.call('STRLEN', entry) > 0 then
  if ARGV[6] ~= '1' or redis.call('GETRANGE', entry, ARGV[4], ARGV[5]) ~= ARGV[7] then
    return {1, redis.call('GETRANGE', entry, 0, ARGV[3])}
  end
end
local held = redis.call('GET', lease)
if held and held ~= holder then
  return {0, held == 'solo' and 'solo' or 'theirs'}
end
redis.call('SET', lease, holder, 'PX', ARGV[2])
return {0, 'mine'}
