-- Replies further: nothing if more is due (call again); the word 'saturated'; or the number of keys and the bits.
if redis.call('ZCOUNT', stale, '-inf', ARGV[1]) > 0 then return {calls, lost} end
if now_ms < number('saturated_until_ms') then return {calls, lost, 'saturated'} end
return {calls, lost, redis.call('ZCARD', stale) - 1, redis.call('GETRANGE', bits, 0, -1)}
