-- evict(): a fragment for the scripts that follow. Removes entries among KEYS that still have the expected guard.
-- first, count: position and number of the names in KEYS. guards: index of the first guard in ARGV; the others follow.
local function evict(first, count, guards, first_byte, last_byte)
  local meant = {}
  for i = 0, count - 1 do
    if redis.call('GETRANGE', KEYS[first + i], first_byte, last_byte) == ARGV[guards + i] then
      meant[#meant + 1] = KEYS[first + i]
    end
  end
  for i = 1, #meant, 1000 do  -- Lua's unpack limits the values of one command
    redis.call('UNLINK', unpack(meant, i, math.min(i + 999, #meant)))
  end
end
