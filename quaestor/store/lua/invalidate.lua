-- After the sketch's state and writing, index_claiming, store_evicting and budget: claim, tell the sketch, evict, all at once.
-- KEYS 1-5 the sketch's, 6-10 the index's, 11-15 those of the entries' account, 16... names of entries, which end with {digest}.
-- ARGV 1-8 the sketch's; 9 max_stale, 10 now_ms, 11 forget_dead_before_ms, 12 max_dead, 13 and 14 first and last byte of the
-- guard, 15 how many entries, 16... the guard expected under each name, then the registrations.
-- Replies further: payload, copies_until_ms and remaining lifetime in ms of each dependent claimed, in turns.
local entries = tonumber(ARGV[15])
local account = account_of(KEYS, 11)
for i = 1, entries do
  evict(KEYS[15 + i], ARGV[15 + i], ARGV[13], ARGV[14])
  forget_guarded(account, string.match(KEYS[15 + i], '{(%x+)}$'), ARGV[15 + i])
end
local registrations = {}
for i = 16 + entries, #ARGV do registrations[#registrations + 1] = ARGV[i] end
local index_keys = {KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]}
local reply = {calls, lost}
for _, claimed in ipairs(claim(index_keys, registrations, ARGV[10], ARGV[11], ARGV[12])) do
  local digest = string.sub(claimed[1], 1, 16)
  reply[#reply + 1] = claimed[1]
  reply[#reply + 1] = claimed[2]
  reply[#reply + 1] = written(digest, tonumber(ARGV[9]))
end
return reply
