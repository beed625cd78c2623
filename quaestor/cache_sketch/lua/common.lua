-- Put in front of every script of the sketch. KEYS and fields: see quaestor/cache_sketch/redis.py.
-- ARGV 1 now_ms, 2 epoch the caller knows or '', 3 epoch to begin if needed, 4 dark_until_ms, 5 slices, 6 bits per slice,
-- 7 entries to sweep; a script's own arguments follow from 8.
local reads, stale, counters, bits, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now_ms, known_epoch, slices, bits_per_slice = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[5]), tonumber(ARGV[6])
local size_bits = slices * bits_per_slice

local function number(field)
  return tonumber(redis.call('HGET', meta, field) or '0')
end

local function raise(field, at_ms)
  if tonumber(at_ms) > number(field) then redis.call('HSET', meta, field, at_ms) end
end

-- Count the key's positions up or down by one; set or clear the bits whose counter left or reached zero.
local function count(digest, step)
  local commands, positions = {'BITFIELD', counters, 'OVERFLOW', 'SAT'}, {}
  for i = 0, slices - 1 do
    local position = i * bits_per_slice + struct.unpack('<H', digest, 2 * i + 1) % bits_per_slice
    positions[i + 1] = position
    local n = #commands
    commands[n + 1], commands[n + 2], commands[n + 3], commands[n + 4] = 'INCRBY', 'u32', '#' .. position, step
  end
  local values = redis.call(unpack(commands))
  for i, position in ipairs(positions) do
    -- Redis counts bits from the most significant of a byte, the wire format from the least.
    local low = position % 8
    if step == 1 and values[i] == 1 then
      redis.call('SETBIT', bits, position - low + 7 - low, 1)
    elseif step == -1 and values[i] == 0 then
      redis.call('SETBIT', bits, position - low + 7 - low, 0)
    end
  end
end

-- Begin anew if anything is missing. What a server without its data once knew may be alive until dark_until_ms; only a
-- caller that knew no epoch, on a server without any of the keys, may take it for a new deployment.
local function open()
  local there = redis.call('EXISTS', reads, stale, counters, bits, meta)
  if there == 5 and redis.call('STRLEN', bits) == size_bits / 8 then
    local epoch = redis.call('HGET', meta, 'epoch')
    if known_epoch ~= '' and known_epoch ~= epoch then raise('saturated_until_ms', ARGV[4]) end
    return epoch
  end
  redis.call('DEL', reads, stale, counters, bits, meta)
  redis.call('ZADD', reads, 'inf', '')
  redis.call('ZADD', stale, 'inf', '')
  redis.call('SETRANGE', counters, size_bits * 4 - 1, '\0')
  redis.call('SETRANGE', bits, size_bits / 8 - 1, '\0')
  redis.call('HSET', meta, 'epoch', ARGV[3])
  if known_epoch ~= '' or there > 0 then raise('saturated_until_ms', ARGV[4]) end
  return ARGV[3]
end

local function sweep()
  local dead = redis.call('ZRANGEBYSCORE', reads, '-inf', ARGV[1], 'LIMIT', 0, ARGV[7])
  if #dead > 0 then redis.call('ZREM', reads, unpack(dead)) end
  local due = redis.call('ZRANGEBYSCORE', stale, '-inf', ARGV[1], 'LIMIT', 0, ARGV[7])
  for _, digest in ipairs(due) do count(digest, -1) end
  if #due > 0 then redis.call('ZREM', stale, unpack(due)) end
end

local epoch = open()
sweep()
