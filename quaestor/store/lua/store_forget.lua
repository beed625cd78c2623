-- Forgets entries that were evicted elsewhere. Follows budget. KEYS the account's. ARGV digest and guard, alternately.
local digests, guards = {}, {}
for i = 1, #ARGV, 2 do
  digests[#digests + 1], guards[#guards + 1] = ARGV[i], ARGV[i + 1]
end
forget_guarded(account_of(KEYS, 1), digests, guards)
return redis.status_reply('OK')
