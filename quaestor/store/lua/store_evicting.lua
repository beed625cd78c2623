-- A fragment: evict() for scripts that follow. Removes those entries among KEYS that are still the ones meant.
-- first, count: of their names among KEYS. guards: index in ARGV of the first one's; the others' follow.
local function evict(first, count, guards, first_byte, last_byte)
  local meant = {}
  for i = 0, count - 1 do
    if redis.call('GETRANGE', KEYS[first + i], first_byte, last_byte) == ARGV[guards + i] then
      meant[#meant + 1] = KEYS[first + i]
    end
  end
  for i = 1, #meant, 1000 do  -- so many values a command may be given here
    redis.call('UNLINK', unpack(meant, i, math.min(i + 999, #meant)))
  end
end
