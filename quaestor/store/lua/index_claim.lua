-- After index_claiming. KEYS dependents until edges claims dead. ARGV now_ms forget_dead_before_ms max_dead
-- registration...
-- Claims the dependents of these registrations. Returns payload and copies_until_ms of each claimed dependent, alternately.
local registrations = {}
for i = 4, #ARGV do registrations[i - 3] = ARGV[i] end
local reply = {}
for _, claimed in ipairs(claim(KEYS, registrations, ARGV[1], ARGV[2], ARGV[3])) do
  reply[#reply + 1] = claimed[1]
  reply[#reply + 1] = claimed[2]
end
return reply
