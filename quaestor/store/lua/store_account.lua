-- Takes an entry into the account before it is stored elsewhere. Follows budget and budget_put.
-- KEYS the account's. ARGV as for put(). Returns the digests of entries that must leave.
return put(account_of(KEYS, 1), 1)
