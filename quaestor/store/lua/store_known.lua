-- After budget: whether an entry is in the account, this one or another in its place. KEYS the account's. ARGV digest.
return redis.call('HEXISTS', account_of(KEYS, 1).records, ARGV[1])
