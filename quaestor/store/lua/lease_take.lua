-- Returns {1, entry}. Without an entry: {0, 'mine'} if this holder fetches it, {0, 'theirs'} if another holder does, {0, 'solo'} if
-- everyone fetches for themselves.
-- KEYS entry lease. ARGV holder, lease_ms, last byte to read, first and last byte of an entry's identity, 1 if one entry counts as
-- absent, and the identity of that entry.
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
