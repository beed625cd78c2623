-- KEYS waiting taken age about. ARGV count {token member until_ms}... {phase due_ms}...
-- Forgets finished members. Each member of phase 0 is put again for every later phase in ARGV. The number of commands does not
-- depend on the number of members.
local waiting, taken, age, about = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local last = 1 + 3 * tonumber(ARGV[1])
local held, members = {}, {}
for i = 2, last, 3 do
  held[#held + 1] = ARGV[i] .. '|' .. ARGV[i + 1]
  members[#members + 1] = ARGV[i + 1]
end
redis.call('ZREM', taken, unpack(held))
local gone = {}
for i, open in ipairs(redis.call('ZMSCORE', waiting, unpack(members))) do
  if not open then
    gone[#gone + 1] = members[i]
  end
end
if #gone > 0 then
  redis.call('ZREM', age, unpack(gone))
  redis.call('HDEL', about, unpack(gone))
end
for j = last + 1, #ARGV, 2 do
  local due, again, told = tonumber(ARGV[j + 1]), {}, {}
  for i, member in ipairs(members) do
    local until_ms = ARGV[3 * i + 1]
    if string.sub(member, 1, 1) == '0' and due < tonumber(until_ms) then
      local later = ARGV[j] .. string.sub(member, 2)
      again[#again + 1] = due
      again[#again + 1] = later
      told[#told + 1] = later
      told[#told + 1] = '0 ' .. until_ms
    end
  end
  if #again > 0 then
    redis.call('ZADD', waiting, 'GT', unpack(again))
    redis.call('HSET', about, unpack(told))
  end
end
return 1
