-- Stores an entry and takes it into the account, both or neither. Follows budget and budget_put.
-- KEYS entry, then the account's. ARGV value, ttl_ms, then as for put().
-- Returns the digests of entries that must leave. The entry is not stored if it is among them.
local left = put(account_of(KEYS, 2), 3)
for _, digest in ipairs(left) do
  if digest == ARGV[3] then
    redis.call('UNLINK', KEYS[1])
    return left
  end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return left
