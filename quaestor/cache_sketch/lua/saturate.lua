-- ARGV 10 until_ms.
raise('saturated_until_ms', ARGV[10])
return {calls, lost}
