-- A fragment: evict() for scripts that follow. Removes an entry that is still the one meant.
local function evict(name, guard, first_byte, last_byte)
  if redis.call('GETRANGE', name, first_byte, last_byte) == guard then
    redis.call('UNLINK', name)
  end
end
