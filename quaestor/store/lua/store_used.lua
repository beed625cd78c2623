-- Counts hits. Follows budget. KEYS the account's. ARGV now_ms, half_life_ms, then digest and hits, alternately.
-- Returns the bytes in the account.
local account = account_of(KEYS, 1)
local now = tonumber(ARGV[1]) / tonumber(ARGV[2])
forget_expired(account, ARGV[1], 100)
for i = 3, #ARGV, 2 do
  local record = record_of(account, ARGV[i])
  if record then
    record[3] = with_hits(record[3], tonumber(ARGV[i + 1]), now)
    redis.call('HSET', account.records, ARGV[i], cmsgpack.pack(record))
    redis.call('ZADD', account.kept, 'XX', benefit(record), ARGV[i])
  end
end
local totals = redis.call('HMGET', account.totals, 'newcomers', 'kept')
return tonumber(totals[1] or '0') + tonumber(totals[2] or '0')
