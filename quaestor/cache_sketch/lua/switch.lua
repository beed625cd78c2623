-- ARGV 10 whether clients must send every request to the network (1, 0).
redis.call('HSET', meta, 'off', ARGV[10])
return {calls, lost}
