-- Returns 1 if the account has an entry under this digest, the same or another. Follows budget. KEYS the account's. ARGV digest.
return redis.call('HEXISTS', account_of(KEYS, 1).records, ARGV[1])
