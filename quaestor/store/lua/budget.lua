-- Account of the entries: a fragment for the scripts that follow. Keys: see quaestor/store/redis_budget.py.
-- records: digest -> record of the entry. newcomers: digests by time of arrival, ms. kept: digests by benefit.
-- ends: digests by expiry time of the entry, ms. totals: bytes of newcomers and of kept.
local function account_of(keys, first)
  return {records = keys[first], newcomers = keys[first + 1], kept = keys[first + 2], ends = keys[first + 3], totals = keys[first + 4]}
end

-- A record: bytes, cost in ms, demand, guard. Demand is the binary logarithm of the hits. A hit counts twice as much as a hit one
-- half-life earlier, so hits age without any change to the record.
local function record_of(account, digest)
  local packed = redis.call('HGET', account.records, digest)
  return packed and cmsgpack.unpack(packed)
end

local function with_hits(demand, hits, now)
  local fresh = math.log(hits) / math.log(2) + now
  if not demand then return fresh end
  local more, less = math.max(demand, fresh), math.min(demand, fresh)
  return more + math.log(1 + 2 ^ (less - more)) / math.log(2)
end

local function benefit(record)
  return string.format('%.9f', record[3] + math.log(record[2] / record[1]) / math.log(2))
end

local function forget(account, digest, record)
  local pool = 'kept'
  if redis.call('ZREM', account.newcomers, digest) == 1 then pool = 'newcomers' else redis.call('ZREM', account.kept, digest) end
  redis.call('HINCRBY', account.totals, pool, -record[1])
  redis.call('HDEL', account.records, digest)
  redis.call('ZREM', account.ends, digest)
end

-- Forgets these entries, except where another entry (another guard) has replaced one. Works by the thousand, because Lua's unpack
-- limits the values of one command.
local function forget_guarded(account, digests, guards)
  for first = 1, #digests, 1000 do
    local last, left = math.min(first + 999, #digests), {newcomers = 0, kept = 0}
    local gone, bytes, known = {}, {}, {}
    for i, packed in ipairs(redis.call('HMGET', account.records, unpack(digests, first, last))) do
      local digest = digests[first + i - 1]
      local record = packed and cmsgpack.unpack(packed)
      if record and record[4] == guards[first + i - 1] and not known[digest] then
        gone[#gone + 1], bytes[#bytes + 1], known[digest] = digest, record[1], true
      end
    end
    if #gone > 0 then
      for i, came_ms in ipairs(redis.call('ZMSCORE', account.newcomers, unpack(gone))) do
        local pool = came_ms and 'newcomers' or 'kept'
        left[pool] = left[pool] + bytes[i]
      end
      for _, pool in ipairs({'newcomers', 'kept'}) do
        if left[pool] > 0 then
          redis.call('ZREM', account[pool], unpack(gone))
          redis.call('HINCRBY', account.totals, pool, -left[pool])
        end
      end
      redis.call('HDEL', account.records, unpack(gone))
      redis.call('ZREM', account.ends, unpack(gone))
    end
  end
end

-- Forgets expired entries, at most `most` of them.
local function forget_expired(account, now_ms, most)
  for _, digest in ipairs(redis.call('ZRANGEBYSCORE', account.ends, '-inf', now_ms, 'LIMIT', 0, most)) do
    local record = record_of(account, digest)
    if record then forget(account, digest, record) else redis.call('ZREM', account.ends, digest) end
  end
end

-- Calls leave(digest, record) from the lowest score upward until the pool is within its bytes, at most AT_ONCE times.
-- While a script runs, the server does nothing else; the script of the next entry continues.
local AT_ONCE = 1000
local function lowest(account, pool, most_bytes, leave)
  local bytes = tonumber(redis.call('HGET', account.totals, pool) or '0')
  for _ = 1, AT_ONCE do
    if bytes <= most_bytes then return end
    local digest = redis.call('ZRANGE', account[pool], 0, 0)[1]
    if not digest then
      redis.call('HSET', account.totals, pool, 0)
      return
    end
    local record = record_of(account, digest)
    if record then bytes = bytes - record[1] end
    leave(digest, record)
  end
end
