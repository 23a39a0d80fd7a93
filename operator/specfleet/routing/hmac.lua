-- The keyed hash of a prompt: HMAC-SHA-256 (RFC 2104, FIPS 180-4) on LuaJIT's bit operations. Envoy's Lua API verifies
-- signatures but makes no digest, and its formatters make none. Goes before filter.lua in the one file that Envoy reads.

-- Of a longer prompt only the beginning is hashed, so that a worker is held for a millisecond at most.
local MAX_HASHED_BYTES = 65536
local MIN_KEY_BYTES = 32
-- How long a key is used before its file is read again; the kubelet renews that within a minute or two.
local KEY_SECONDS = 60
local prompt_hash, hmac

do
local sub, byte, concat = string.sub, string.byte, table.concat
local band, bxor, bnot, ror, rshift, tobit = bit.band, bit.bxor, bit.bnot, bit.ror, bit.rshift, bit.tobit

-- The first 32 bits of the fractional parts of the cube roots of the first 64 primes, and of the square roots of the
-- first 8. Doubles carry 53 bits, enough for 32 behind the point and the few before it.
local ROUNDS, INITIAL = {}, {}
do
  local number, found = 2, 0
  while found < 64 do
    local prime = true
    for divisor = 2, math.floor(math.sqrt(number)) do
      if number % divisor == 0 then prime = false end
    end
    if prime then
      found = found + 1
      ROUNDS[found] = tobit(math.floor((number ^ (1 / 3)) % 1 * 4294967296))
      if found <= 8 then INITIAL[found] = tobit(math.floor(number ^ 0.5 % 1 * 4294967296)) end
    end
    number = number + 1
  end
end

local schedule = {}

-- Work one block of 64 bytes, s[at..at+63], into the eight words of `state`.
local function compress(state, s, at)
  local w = schedule
  for i = 1, 16 do
    local a, b, c, d = byte(s, at + 4 * i - 4, at + 4 * i - 1)
    w[i] = tobit(a * 16777216 + b * 65536 + c * 256 + d)
  end
  for i = 17, 64 do
    local x, y = w[i - 15], w[i - 2]
    local low = bxor(ror(x, 7), ror(x, 18), rshift(x, 3))
    local high = bxor(ror(y, 17), ror(y, 19), rshift(y, 10))
    w[i] = tobit(w[i - 16] + low + w[i - 7] + high)
  end
  local a, b, c, d = state[1], state[2], state[3], state[4]
  local e, f, g, h = state[5], state[6], state[7], state[8]
  for i = 1, 64 do
    local choice = bxor(band(e, f), band(bnot(e), g))
    local first = tobit(h + bxor(ror(e, 6), ror(e, 11), ror(e, 25)) + choice + ROUNDS[i] + w[i])
    local most = bxor(band(a, b), band(a, c), band(b, c))
    local second = tobit(bxor(ror(a, 2), ror(a, 13), ror(a, 22)) + most)
    h, g, f, e, d, c, b, a = g, f, e, tobit(d + first), c, b, a, tobit(first + second)
  end
  state[1], state[2], state[3], state[4] =
    tobit(state[1] + a), tobit(state[2] + b), tobit(state[3] + c), tobit(state[4] + d)
  state[5], state[6], state[7], state[8] =
    tobit(state[5] + e), tobit(state[6] + f), tobit(state[7] + g), tobit(state[8] + h)
end

-- The 32 bytes of SHA-256 of a text.
local function sha256(s)
  local state = { unpack(INITIAL) }
  local whole = #s - #s % 64
  for at = 1, whole, 64 do compress(state, s, at) end
  local bits = #s * 8
  local tail = sub(s, whole + 1) .. "\128"
  tail = tail .. string.rep("\0", (56 - #tail) % 64)
  for shift = 7, 0, -1 do tail = tail .. string.char(math.floor(bits / 256 ^ shift) % 256) end
  for at = 1, #tail, 64 do compress(state, tail, at) end
  local out = {}
  for i = 1, 8 do
    local word = state[i]
    out[i] = string.char(rshift(word, 24), band(rshift(word, 16), 255), band(rshift(word, 8), 255), band(word, 255))
  end
  return concat(out)
end

local function masked(key, mask)
  return (key:gsub(".", function(c) return string.char(bxor(byte(c), mask)) end))
end

-- HMAC-SHA-256 of a text, in hexadecimal.
hmac = function(key, s)
  if #key > 64 then key = sha256(key) end
  key = key .. string.rep("\0", 64 - #key)
  local digest = sha256(masked(key, 0x5c) .. sha256(masked(key, 0x36) .. s))
  return (digest:gsub(".", function(c) return string.format("%02x", byte(c)) end))
end

local known = {}

-- The key in a file, as {key, id}, or {problem} once for each reading where there is none that is long enough.
local function key_in(path)
  local at, now = known[path], os.time()
  if at and now >= at.read and now - at.read < KEY_SECONDS then return at end
  at = { read = now }
  known[path] = at
  local file = io.open(path, "rb")
  local key = file and file:read(4096)
  if file then file:close() end
  if key and #key >= MIN_KEY_BYTES then
    at.key, at.id = key, sub(hmac(key, "key"), 1, 8)
  else
    at.problem = (key and "fewer than " .. MIN_KEY_BYTES .. " bytes" or "nothing to read") .. " in " .. path
  end
  return at
end

-- "KEY:HASH" of the beginning of a text, where KEY tells keys apart; else nil, and at times what is wrong with the key.
prompt_hash = function(path, text)
  local at = key_in(path)
  if at.key then return at.id .. ":" .. hmac(at.key, sub(text, 1, MAX_HASHED_BYTES)) end
  local problem = at.problem
  at.problem = nil
  return nil, problem
end
end

