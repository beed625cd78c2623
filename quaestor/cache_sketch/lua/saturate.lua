-- ARGV 8 until_ms. Returns the epoch.
raise('saturated_until_ms', ARGV[8])
return {epoch}
