-- After budget and budget_put: take an entry into the account before it is stored elsewhere.
-- KEYS the account's. ARGV as for put(). Returns the digests of what has to leave.
return put(account_of(KEYS, 1), 1)
