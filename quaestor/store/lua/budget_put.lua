-- put(): take an entry into the account. A fragment, after budget.
-- ARGV first...: digest, bytes, cost_ms, guard, now_ms, ends_ms, half_life_ms, budget of newcomers, budget of kept.
-- Returns the digests of entries that must leave. The new entry is among them if the others are worth more.
local EXPIRED_AT_ONCE = 100
local function put(account, first)
  local digest, guard = ARGV[first], ARGV[first + 3]
  local bytes, cost_ms, now_ms = tonumber(ARGV[first + 1]), tonumber(ARGV[first + 2]), tonumber(ARGV[first + 4])
  local newcomers_bytes, kept_bytes = tonumber(ARGV[first + 7]), tonumber(ARGV[first + 8])
  local left = {}
  forget_expired(account, now_ms, EXPIRED_AT_ONCE)
  local before = record_of(account, digest)
  local known = before and redis.call('ZSCORE', account.kept, digest)
  if before then forget(account, digest, before) end
  if bytes > kept_bytes then return {digest} end
  local record = {bytes, cost_ms, with_hits(before and before[3], 1, now_ms / tonumber(ARGV[first + 6])), guard}
  redis.call('HSET', account.records, digest, cmsgpack.pack(record))
  redis.call('ZADD', account.ends, ARGV[first + 5], digest)
  local function keep(one, what)
    redis.call('ZADD', account.kept, benefit(what), one)
    redis.call('HINCRBY', account.totals, 'kept', what[1])
  end
  local function drop(one, what)
    if what then forget(account, one, what) else redis.call('ZREM', account.kept, one) end
    left[#left + 1] = one
  end
  if known or bytes > newcomers_bytes then
    keep(digest, record)
  else
    redis.call('ZADD', account.newcomers, now_ms, digest)
    redis.call('HINCRBY', account.totals, 'newcomers', bytes)
    lowest(account, 'newcomers', newcomers_bytes, function(one, what)
      redis.call('ZREM', account.newcomers, one)
      if what then
        redis.call('HINCRBY', account.totals, 'newcomers', -what[1])
        keep(one, what)
      end
    end)
  end
  lowest(account, 'kept', kept_bytes, drop)
  return left
end
