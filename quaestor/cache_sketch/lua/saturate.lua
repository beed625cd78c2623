-- ARGV 9 until_ms.
raise('saturated_until_ms', ARGV[9])
return {calls, lost}
