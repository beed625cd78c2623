-- Claims dependents, records them in the sketch and evicts entries, in one step. Follows the sketch's state and writing,
-- index_claiming, store_evicting and budget.
-- KEYS 1-5 the sketch's, 6-10 the index's, 11-15 the entry account's, 16... names of entries, which end with {digest}.
-- ARGV 1-9 the sketch's; 10 max_stale, 11 now_ms, 12 forget_dead_before_ms, 13 max_dead, 14 and 15 first and last byte of the
-- guard, 16 number of entries, 17... the guard expected under each name, then the registrations.
-- Returns the sketch's calls and lost, then payload, copies_until_ms and remaining lifetime in ms of each claimed dependent.
local entries = tonumber(ARGV[16])
local digests, guards = {}, {}
for i = 1, entries do
  digests[i], guards[i] = string.match(KEYS[15 + i], '{(%x+)}$'), ARGV[16 + i]
end
evict(16, entries, 17, ARGV[14], ARGV[15])
forget_guarded(account_of(KEYS, 11), digests, guards)
local registrations = {}
for i = 17 + entries, #ARGV do registrations[#registrations + 1] = ARGV[i] end
local index_keys = {KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]}
local reply = {calls, lost}
for _, claimed in ipairs(claim(index_keys, registrations, ARGV[11], ARGV[12], ARGV[13])) do
  local key = string.sub(claimed[1], 1, 16)
  if string.find(claimed[1], '#', 17, true) then  -- rare: the resource may be in a partition of the sketch
    key = key .. (string.match(cjson.decode(string.sub(claimed[1], 17)).resource, '#(%x%x%x%x%x%x%x%x)$') or '')
  end
  reply[#reply + 1] = claimed[1]
  reply[#reply + 1] = claimed[2]
  reply[#reply + 1] = written(key, tonumber(ARGV[10]))
end
return reply
