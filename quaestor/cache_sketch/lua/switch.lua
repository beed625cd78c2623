-- ARGV 10 whether clients are told to leave everything to the network (1, 0).
redis.call('HSET', meta, 'off', ARGV[10])
return {calls, lost}
