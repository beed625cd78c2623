-- Returns the epoch, then: nothing if more is due (call again); the word 'saturated'; or the number of keys and the bits.
if redis.call('ZCOUNT', stale, '-inf', ARGV[1]) > 0 then return {epoch} end
if now_ms < number('saturated_until_ms') then return {epoch, 'saturated'} end
return {epoch, redis.call('ZCARD', stale) - 1, redis.call('GETRANGE', bits, 0, -1)}
