-- After store_evicting. KEYS: names of entries. ARGV: first and last byte of the guard, then the guard expected under each name.
for i, name in ipairs(KEYS) do
  evict(name, ARGV[i + 2], ARGV[1], ARGV[2])
end
return redis.status_reply('OK')
