-- A fragment, first in every script of the sketch: opens its state, counts the call, sweeps. KEYS and fields: see quaestor/cache_sketch/redis.py.
-- ARGV 1 now_ms, 2 caller, 3 calls of this caller that were answered, 4 saturate_until_ms, 5 slices, 6 bits per slice,
-- 7 entries to sweep, 8 forget callers not seen since ms; a script's own arguments follow from 9.
-- Replies begin with this caller's number of calls, and 1 if state was lost, 0 if not.
local reads, stale, counters, bits, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now_ms, answered, slices, bits_per_slice = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[5]), tonumber(ARGV[6])
local size_bits = slices * bits_per_slice

local function number(field)
  return tonumber(redis.call('HGET', meta, field) or '0')
end

local function raise(field, at_ms)
  if tonumber(at_ms) > number(field) then redis.call('HSET', meta, field, at_ms) end
end

-- Count the key's positions up or down by one; set or clear the bits whose counter left or reached zero.
local function count(digest, step)
  local counting, positions = {'BITFIELD', counters, 'OVERFLOW', 'SAT'}, {}
  for i = 0, slices - 1 do
    local position = i * bits_per_slice + struct.unpack('<H', digest, 2 * i + 1) % bits_per_slice
    local n = #counting
    positions[i + 1] = position
    counting[n + 1], counting[n + 2], counting[n + 3], counting[n + 4] = 'INCRBY', 'u32', '#' .. position, step
  end
  local edge, bit = 1, 1
  if step < 0 then edge, bit = 0, 0 end
  local setting = {'BITFIELD', bits}
  for i, value in ipairs(redis.call(unpack(counting))) do
    if value == edge then
      -- Redis counts bits from the most significant of a byte, the wire format from the least.
      local low, n = positions[i] % 8, #setting
      setting[n + 1], setting[n + 2], setting[n + 3], setting[n + 4] = 'SET', 'u1', positions[i] - low + 7 - low, bit
    end
  end
  if #setting > 2 then redis.call(unpack(setting)) end
end

-- Begin anew if anything is missing. Returns whether something had been there.
local function open()
  local there = redis.call('EXISTS', reads, stale, counters, bits, meta)
  if there == 5 and redis.call('STRLEN', bits) == size_bits / 8 then return false end
  redis.call('DEL', reads, stale, counters, bits, meta)
  redis.call('ZADD', reads, 'inf', '')
  redis.call('ZADD', stale, 'inf', '')
  redis.call('SETRANGE', counters, size_bits * 4 - 1, '\0')
  redis.call('SETRANGE', bits, size_bits / 8 - 1, '\0')
  return there > 0
end

-- Count this call. Fewer calls than the caller has had answers to: the server has gone back to an earlier state.
local function call()
  local field = 'caller:' .. ARGV[2]
  local known = redis.call('HGET', meta, field)
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
  redis.call('HSET', meta, field, string.format('%d %s', calls, at_ms))
  return calls
end

local function sweep()
  local dead = redis.call('ZRANGEBYSCORE', reads, '-inf', ARGV[1], 'LIMIT', 0, ARGV[7])
  if #dead > 0 then redis.call('ZREM', reads, unpack(dead)) end
  local due = redis.call('ZRANGEBYSCORE', stale, '-inf', ARGV[1], 'LIMIT', 0, ARGV[7])
  for _, digest in ipairs(due) do count(digest, -1) end
  if #due > 0 then redis.call('ZREM', stale, unpack(due)) end
end

local incomplete = open()
local calls, lost = call(), 0
if incomplete or calls <= answered then
  raise('saturated_until_ms', ARGV[4])
  lost = 1
end
sweep()
