-- Remove entries that are still the ones meant.
-- KEYS: names of entries. ARGV: first and last byte of the guard, then the guard expected under each name.
for i, name in ipairs(KEYS) do
  if redis.call('GETRANGE', name, ARGV[1], ARGV[2]) == ARGV[i + 2] then
    redis.call('UNLINK', name)
  end
end
return redis.status_reply('OK')
