-- Evicts entries. Follows store_evicting. KEYS: names of entries. ARGV: first and last byte of the guard, then the
-- guard expected under each name.
evict(1, #KEYS, 3, ARGV[1], ARGV[2])
return redis.status_reply('OK')
