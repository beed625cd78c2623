-- After budget: forget entries that were evicted elsewhere. KEYS the account's. ARGV digest and guard in turns.
local account = account_of(KEYS, 1)
for i = 1, #ARGV, 2 do
  forget_guarded(account, ARGV[i], ARGV[i + 1])
end
return redis.status_reply('OK')
