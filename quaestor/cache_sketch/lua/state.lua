-- A fragment, first in every script of the sketch: opens its state, counts the call, sweeps. KEYS and fields: see quaestor/cache_sketch/redis.py.
-- ARGV 1 now_ms, 2 caller, 3 calls of this caller that were answered, 4 saturate_until_ms, 5 slices, 6 bits per slice,
-- 7 entries to sweep, 8 forget callers not seen since ms, 9 whether a new sketch is saturated (1, 0). A script's own
-- arguments follow from 10.
-- Replies begin with this caller's number of calls, and 1 if state was lost, 2 if the sketch is new and was saturated, 0 otherwise.
local reads, stale, counters, bits, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now_ms, answered, slices, bits_per_slice = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[5]), tonumber(ARGV[6])
local size_bits = slices * bits_per_slice
local behind_until_ms = 0

local function number(field)
  return tonumber(redis.call('HGET', meta, field) or '0')
end

local function raise(field, at_ms)
  if tonumber(at_ms) > number(field) then redis.call('HSET', meta, field, at_ms) end
end

-- Number of the filter of a key's partition; 0: the key is in the union alone. Each call returns the same number, because no
-- filter is added after partitions.MAX_PARTITIONS.
local function filter_of(key)
  local token = string.sub(key, 17)
  if token == '' then return 0 end
  local known, filters = unpack(redis.call('HMGET', meta, 'partition:' .. token, 'partitions'))
  if known then return tonumber(known) end
  filters = tonumber(filters or '0') + 1
  if filters > 64 then return 0 end
  redis.call('HSET', meta, 'partition:' .. token, filters, 'partitions', filters)
  return filters
end

-- Count the key's positions up or down by one, in the union and in its partition; set or clear the bits whose counter left or
-- reached zero.
local function count(key, step)
  local counting, positions, bases = {'BITFIELD', counters, 'OVERFLOW', 'SAT'}, {}, {0}
  local own = filter_of(key)
  if own > 0 then
    bases[2] = own * size_bits
    redis.call('HINCRBY', meta, 'keys:' .. own, step)
  end
  for _, base in ipairs(bases) do
    for i = 0, slices - 1 do
      local position = base + i * bits_per_slice + struct.unpack('<H', key, 2 * i + 1) % bits_per_slice
      local n = #counting
      positions[#positions + 1] = position
      counting[n + 1], counting[n + 2], counting[n + 3], counting[n + 4] = 'INCRBY', 'u32', '#' .. position, step
    end
  end
  local edge, bit = 1, 1
  if step < 0 then edge, bit = 0, 0 end
  local setting = {'BITFIELD', bits}
  for i, value in ipairs(redis.call(unpack(counting))) do
    if value == edge then
      -- Redis counts bits from the most significant bit of a byte, the wire format from the least significant.
      local low, n = positions[i] % 8, #setting
      setting[n + 1], setting[n + 2], setting[n + 3], setting[n + 4] = 'SET', 'u1', positions[i] - low + 7 - low, bit
    end
  end
  if #setting > 2 then redis.call(unpack(setting)) end
end

-- Empty the sketch if a key is missing, or has another geometry. Returns whether state was lost, and whether there was none before.
local function open()
  local there = redis.call('EXISTS', reads, stale, counters, bits, meta)
  local geometry, off = slices .. 'x' .. bits_per_slice, nil
  if there > 0 and redis.call('EXISTS', meta) == 1 then
    local known
    known, off = unpack(redis.call('HMGET', meta, 'geometry', 'off'))
    if there == 5 and known == geometry and redis.call('STRLEN', bits) >= size_bits / 8 then return false, false end
  end
  redis.call('DEL', reads, stale, counters, bits, meta)
  redis.call('HSET', meta, 'geometry', geometry, 'off', off or '0')
  redis.call('ZADD', reads, 'inf', '')
  redis.call('ZADD', stale, 'inf', '')
  redis.call('SETRANGE', counters, size_bits * 4 - 1, '\0')
  redis.call('SETRANGE', bits, size_bits / 8 - 1, '\0')
  return there > 0, there == 0
end

-- Count this call. If there are fewer calls than the caller has had answers, the server has gone back to an earlier state.
local function call()
  local field = 'caller:' .. ARGV[2]
  local known, latest_ms = unpack(redis.call('HMGET', meta, field, 'latest_ms'))
  local calls, at_ms = string.match(known or '0 0', '(%d+) (%d+)')
  if not known then
    local fields = redis.call('HGETALL', meta)
    for i = 1, #fields, 2 do
      local seen_ms = string.sub(fields[i], 1, 7) == 'caller:' and string.match(fields[i + 1], ' (%d+)')
      if seen_ms and tonumber(seen_ms) < tonumber(ARGV[8]) then redis.call('HDEL', meta, fields[i]) end
    end
  end
  calls = tonumber(calls) + 1
  if tonumber(at_ms) < now_ms then at_ms = ARGV[1] end
  if not latest_ms or tonumber(latest_ms) < now_ms then latest_ms = ARGV[1] end
  redis.call('HSET', meta, field, string.format('%d %s', calls, at_ms), 'latest_ms', latest_ms)
  -- The clock was set back by more than clocks may differ (limits.CLOCK_GRACE_MS). Copies of removed keys may
  -- live again, and everything counts as changed until the later time.
  if now_ms + 2000 < tonumber(latest_ms) then behind_until_ms = tonumber(latest_ms) end
  return calls
end

local function sweep()
  local dead = redis.call('ZRANGEBYSCORE', reads, '-inf', ARGV[1], 'LIMIT', 0, ARGV[7])
  if #dead > 0 then redis.call('ZREM', reads, unpack(dead)) end
  local due = redis.call('ZRANGEBYSCORE', stale, '-inf', ARGV[1], 'LIMIT', 0, ARGV[7])
  for _, key in ipairs(due) do count(key, -1) end
  if #due > 0 then
    redis.call('ZREM', stale, unpack(due))
    redis.call('HINCRBY', meta, 'removed', #due)
  end
end

local incomplete, begun = open()
local calls, lost = call(), 0
if incomplete or calls <= answered then
  raise('saturated_until_ms', ARGV[4])
  lost = 1
elseif begun and ARGV[9] == '1' then
  raise('saturated_until_ms', ARGV[4])
  lost = 2
end
sweep()
