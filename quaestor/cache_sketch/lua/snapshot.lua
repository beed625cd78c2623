-- ARGV 10 token of the partition. The union is sent for '', and for a partition that is not known.
-- Replies further: nothing if more is due (call again); the word 'saturated'; or the number of keys and the bits.
if redis.call('ZCOUNT', stale, '-inf', ARGV[1]) > 0 then return {calls, lost} end
if now_ms < math.max(number('saturated_until_ms'), behind_until_ms) then return {calls, lost, 'saturated'} end
local filter = number('partition:' .. ARGV[10])
local keys = filter > 0 and number('keys:' .. filter) or redis.call('ZCARD', stale) - 1
local size_bytes = size_bits / 8
return {calls, lost, keys, redis.call('GETRANGE', bits, filter * size_bytes, (filter + 1) * size_bytes - 1)}
