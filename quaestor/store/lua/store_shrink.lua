-- Shrinks the account to a smaller budget, by at most a thousand entries of each part. Follows budget.
-- KEYS the account's. ARGV budget of newcomers, budget of kept. Returns the digests of entries that must leave.
local account, left = account_of(KEYS, 1), {}
for i, pool in ipairs({'newcomers', 'kept'}) do
  lowest(account, pool, tonumber(ARGV[i]), function(digest, record)
    if record then forget(account, digest, record) else redis.call('ZREM', account[pool], digest) end
    left[#left + 1] = digest
  end)
end
return left
