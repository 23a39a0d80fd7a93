-- What the router's Envoy does to a request and its answer. Constant: nothing of a SpecDeployment stands in here; what
-- varies by deployment arrives as metadata of the virtual host (see table.py).
--
-- Request: classify by a bounded scan of the body's top-level keys, rewrite a model alias, ask for usage on a stream
-- whose client did not. Answer: read usage and acceptance figures into dynamic metadata that the access loggers count,
-- and hide what only our asking has brought. Any error passes the bytes through and is counted.

local find, sub, byte, match, concat = string.find, string.sub, string.byte, string.match, table.concat

local NAMESPACE = "specfleet"
-- A step is one bracket, one key or one escaped quote. The bound keeps a hostile body from holding a worker: 300,000
-- steps take some tens of milliseconds, and a chat of 2,000 messages needs about 20,000.
local MAX_STEPS = 300000
-- A whole answer larger than this is passed through unread; so is an event of a stream.
local MAX_ANSWER_BYTES = 2097152
local MAX_EVENT_BYTES = 1048576
local MAX_NAME_BYTES = 256
local MEASURED = { ["/v1/chat/completions"] = true, ["/v1/completions"] = true }
local ESCAPES = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }
local UTF8_BOM = "\239\187\191"
-- Upper bounds of the buckets of times, the ladder of specfleet.percentiles: 1 ms to 63 s, ten steps a decade.
local BOUNDS_US = {}
for step = 0, 48 do BOUNDS_US[step + 1] = math.floor(1000 * 10 ^ (step / 10) + 0.5) end
-- Upper bounds of the classes of prompt lengths: whole answers are compared within one class only.
local PROMPT_TOKENS = { 128, 512, 2048, 8192, 32768 }

local steps = 0

local function step()
  steps = steps + 1
  return steps <= MAX_STEPS
end

local function utf8_of(code)
  local char, floor = string.char, math.floor
  if code < 0x80 then return char(code) end
  if code < 0x800 then return char(0xC0 + floor(code / 64), 0x80 + code % 64) end
  if code < 0x10000 then
    return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
  end
  return char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
end

-- The text of a JSON string, given what stands between its quotes. A lone surrogate becomes its three bytes.
local function unescape(raw)
  local at = find(raw, "\\", 1, true)
  if not at then return raw end
  local out, from = {}, 1
  while at do
    out[#out + 1] = sub(raw, from, at - 1)
    local kind = sub(raw, at + 1, at + 1)
    from = at + 2
    if kind == "u" then
      local code = tonumber(match(raw, "^%x%x%x%x", at + 2) or "", 16)
      if not code then return raw end
      from = at + 6
      if code >= 0xD800 and code < 0xDC00 then
        local low = tonumber(match(raw, "^\\u([dD][c-fC-F]%x%x)", from) or "", 16)
        if low then
          code = 0x10000 + (code - 0xD800) * 1024 + (low - 0xDC00)
          from = from + 6
        end
      end
      out[#out + 1] = utf8_of(code)
    else
      out[#out + 1] = ESCAPES[kind] or kind
    end
    at = find(raw, "\\", from, true)
  end
  out[#out + 1] = sub(raw, from)
  return concat(out)
end

-- Index of the quote that closes the string opened at `open`, or nil.
local function string_end(s, open)
  local at = open
  while step() do
    at = find(s, '"', at + 1, true)
    if not at then return nil end
    local before = at - 1
    while byte(s, before) == 92 do before = before - 1 end
    if (at - before) % 2 == 1 then return at end
  end
  return nil
end

-- Index of the last byte of the value that begins at `from`, or nil where none does.
local function value_end(s, from)
  local first = byte(s, from)
  if first == 34 then return string_end(s, from) end
  if first ~= 123 and first ~= 91 then
    local _, last = find(s, "^[%w%+%-%.]+", from)
    return last
  end
  local depth, at = 1, from
  while step() do
    at = find(s, '["%[%]{}]', at + 1)
    if not at then return nil end
    local c = byte(s, at)
    if c == 34 then
      at = string_end(s, at)
      if not at then return nil end
    elseif c == 123 or c == 91 then
      depth = depth + 1
    else
      depth = depth - 1
      if depth == 0 then return at end
    end
  end
  return nil
end

-- Where the values of one object's own keys stand: {key = {first, last}}, and the index of its closing brace; nil where
-- no object begins at `open` or it cannot be read to its end. Of a key that stands twice the last one counts, as in JSON.
local function members(s, open)
  if byte(s, open) ~= 123 then return nil end
  local out = {}
  local at = find(s, "[^ \t\r\n]", open + 1)
  if at and byte(s, at) == 125 then return out, at end
  while at and byte(s, at) == 34 and step() do
    local close = string_end(s, at)
    if not close then return nil end
    local key = sub(s, at + 1, close - 1)
    at = find(s, "[^ \t\r\n]", close + 1)
    if not at or byte(s, at) ~= 58 then return nil end
    local first = find(s, "[^ \t\r\n]", at + 1)
    if not first then return nil end
    local last = value_end(s, first)
    if not last then return nil end
    out[unescape(key)] = { first, last }
    at = find(s, "[^ \t\r\n]", last + 1)
    if not at then return nil end
    local c = byte(s, at)
    if c == 125 then return out, at end
    if c ~= 44 then return nil end
    at = find(s, "[^ \t\r\n]", at + 1)
  end
  return nil
end

-- The members of a text that is one JSON object and nothing else, and the index of its opening brace; else nil.
local function object(s)
  steps = 0
  local from = 1
  if sub(s, 1, 3) == UTF8_BOM then from = 4 end
  local open = find(s, "[^ \t\r\n]", from)
  if not open then return nil end
  local out, close = members(s, open)
  if not out or find(s, "[^ \t\r\n]", close + 1) then return nil end
  return out, open
end

-- The members of the object under one key, or nil.
local function inner(s, keys, key)
  local at = keys and keys[key]
  if not at then return nil end
  return (members(s, at[1]))
end

local function text_of(s, at)
  if not at or byte(s, at[1]) ~= 34 or at[2] - at[1] > 6 * MAX_NAME_BYTES then return nil end
  local text = unescape(sub(s, at[1] + 1, at[2] - 1))
  if #text > MAX_NAME_BYTES then return nil end
  return text
end

local function number_of(s, at)
  if not at or at[2] - at[1] > 32 then return nil end
  local text = sub(s, at[1], at[2])
  if not match(text, "^%-?%d") then return nil end
  return tonumber(text)
end

local function literal(s, at, word)
  return at ~= nil and at[2] - at[1] + 1 == #word and sub(s, at[1], at[2]) == word
end

-- Whether a value asks for something: null, false, 0, "", [] and {} do not, in the engines as here.
local function truthy(s, at)
  if not at then return false end
  local c = byte(s, at[1])
  if c == 34 then return at[2] > at[1] + 1 end
  if c == 91 or c == 123 then return find(s, "[^ \t\r\n]", at[1] + 1) ~= at[2] end
  if c == 110 or c == 102 then return false end
  if c == 116 or c == 78 or c == 73 then return true end
  local mantissa = match(sub(s, at[1], at[2]), "^[^eE]*")
  return find(mantissa, "[1-9I]") ~= nil
end

-- Whether the request asks for one answer: n is 1 or left out, and the prompt is no list of several.
local function single(s, keys)
  local n = keys.n
  if n and not literal(s, n, "null") and number_of(s, n) ~= 1 then return false end
  local prompt = keys.prompt
  if not prompt or byte(s, prompt[1]) ~= 91 then return true end
  local first = find(s, "[^ \t\r\n]", prompt[1] + 1)
  local c = byte(s, first)
  if c ~= 34 and c ~= 91 then return true end
  local last = value_end(s, first)
  return last ~= nil and byte(s, find(s, "[^ \t\r\n]", last + 1) or 0) == 93
end

-- The edit that makes a stream end with its usage, as {first, last, text} where `text` replaces s[first..last]; nil where
-- the client asks for it already, or where what the client sent is not ours to mend.
local function usage_edit(s, keys, open)
  local at = keys.stream_options
  if not at then return { open + 1, open, '"stream_options":{"include_usage":true},' } end
  if literal(s, at, "null") then return { at[1], at[2], '{"include_usage":true}' } end
  local options = inner(s, keys, "stream_options")
  if not options then return nil end
  local asked = options.include_usage
  if asked and not literal(s, asked, "false") and not literal(s, asked, "null") then return nil end
  local comma = next(options) and "," or ""
  -- Continuous usage only ever comes with usage, so this client does not see it today and must not tomorrow.
  local more = options.continuous_usage_stats and ',"continuous_usage_stats":false' or ""
  return { at[2], at[2] - 1, comma .. '"include_usage":true' .. more }
end

local function quote(text)
  return '"' .. text:gsub('[%c"\\]', function(c) return string.format("\\u%04x", byte(c)) end) .. '"'
end

-- What one request is, and its body if it has to change. `fleet` is the virtual host's metadata.
local function classify(s, path, fleet)
  local keys, open = object(s)
  if not keys then return { json = false } end
  local is = { json = true, model = text_of(s, keys.model) }
  if fleet.hash_key then is.prompt = keys.messages or keys.prompt or keys.input end
  local format = inner(s, keys, "response_format")
  is.format = format and text_of(s, format.type)
  is.tools = truthy(s, keys.tools)
  for _, field in ipairs(fleet.refused or {}) do
    if truthy(s, keys[field]) then is.ineligible = true end
  end
  local edits = {}
  if MEASURED[path] and single(s, keys) then
    is.measure = true
    if literal(s, keys.stream, "true") then
      is.stream = true
      local edit = usage_edit(s, keys, open)
      if edit then
        is.hide = true
        edits[1] = edit
      end
    end
  end
  if is.model and fleet.aliases and fleet.aliases[is.model] and fleet.served then
    edits[#edits + 1] = { keys.model[1], keys.model[2], quote(fleet.served) }
  end
  if edits[2] and edits[2][1] < edits[1][1] then edits[1], edits[2] = edits[2], edits[1] end
  local out, from = {}, 1
  for _, edit in ipairs(edits) do
    out[#out + 1] = sub(s, from, edit[1] - 1)
    out[#out + 1] = edit[3]
    from = edit[2] + 1
  end
  if #edits > 0 then
    out[#out + 1] = sub(s, from)
    is.body = concat(out)
  end
  return is
end

-- Usage and acceptance figures of one answer object, or nil where it has no usage.
local function figures(s, keys)
  local usage = inner(s, keys, "usage")
  local completion = usage and number_of(s, usage.completion_tokens)
  if not completion then return nil end
  local out = { completion = completion, prompt = number_of(s, usage.prompt_tokens) or 0 }
  local spec = inner(s, inner(s, keys, "metrics") and members(s, keys.metrics[1]), "speculative_decoding")
  if spec then
    out.drafted = number_of(s, spec.num_draft_tokens)
    out.rounds = number_of(s, spec.num_spec_steps)
    out.accepted = number_of(s, spec.num_accepted_draft_tokens)
    -- The engine counts what the target accepted in the last step though the answer's end cut it off. Each round emits a
    -- token of its own, so more than this was not emitted; else short answers show more tokens a step than k + 1.
    if out.accepted and out.rounds then
      out.accepted = math.max(0, math.min(out.accepted, completion - 1 - out.rounds))
    end
  end
  return out
end

-- A reader of one stream. `hide`: the usage event is there only because we asked.
local function new_stream(hide)
  return { hide = hide, rest = "" }
end

-- One event with its closing blank line: what the client gets of it ("" where nothing).
local function event(stream, text)
  local open = match(text, "^data:[ ]?(){")
  if not open then return text end
  steps = 0
  local keys = members(text, open)
  if not keys then return text end
  local read = figures(text, keys)
  if not read then return text end
  stream.figures = read
  local choices = keys.choices
  local bare = choices and byte(text, choices[1]) == 91 and find(text, "[^ \t\r\n]", choices[1] + 1) == choices[2]
  if bare and stream.hide then return "" end
  -- The client asked for usage itself: it gets the event without the member that our engine flag adds.
  local metrics = keys.metrics
  if metrics then
    local from = match(sub(text, 1, metrics[1] - 1), "(),?[ \t]*\"metrics\"[ \t]*:[ \t]*$")
    if from then return sub(text, 1, from - 1) .. sub(text, metrics[2] + 1) end
  end
  return text
end

-- The bytes to send on for the next bytes of a stream; nil where these are to be sent as they are.
local function stream_step(stream, raw)
  local data = raw
  if stream.rest ~= "" then data = stream.rest .. raw end
  local length = #data
  local last
  if sub(data, -2) == "\n\n" then
    last = length
  else
    -- What was held back holds no end of an event, but for its last bytes. Without the anchor a miss would cost n^2.
    local from = math.max(1, #stream.rest - 2)
    last = (match(data, "^.*\n\n()", from) or 1) - 1
    local other = (match(data, "^.*\r\n\r\n()", from) or 1) - 1
    if other > last then last = other end
  end
  if length - last > MAX_EVENT_BYTES then error("an event of more than " .. MAX_EVENT_BYTES .. " bytes") end
  local out
  local usage = last > 0 and find(data, '"usage"', 1, true)
  if not usage or usage > last or not find(data, '"usage"%s*:%s*{', usage) then
    out = last == length and data or sub(data, 1, last)
  else
    local parts, from = {}, 1
    while from <= last do
      local _, stop = find(data, "\n\r?\n", from)
      stop = stop or last
      parts[#parts + 1] = event(stream, sub(data, from, stop))
      from = stop + 1
    end
    out = concat(parts)
  end
  stream.rest = last == length and "" or sub(data, last + 1)
  if out == raw then return nil end
  return out
end

-- The first of these upper bounds that a number does not exceed, as the label of a counter; "inf" above the last.
local function upper_bound(bounds, number)
  for _, bound in ipairs(bounds) do
    if number <= bound then return string.format("%d", bound) end
  end
  return "inf"
end

-- Objects of Envoy's do not outlive a wait for more bytes, so each is fetched where it is used.
local function set(h, key, value)
  h:streamInfo():dynamicMetadata():set(NAMESPACE, key, value)
end

-- Microseconds since the epoch; Envoy's timestamp() has milliseconds only.
local function now(h) return tonumber(h:timestampString(EnvoyTimestampResolution.MICROSECOND)) end

-- The answer's body begins at `at`. A stream has its time to first token from here on, however it may end.
local function begin_body(h, known, streamed, at)
  set(h, "phase", "body")
  if streamed and known.began then set(h, "ttft", upper_bound(BOUNDS_US, at - known.began)) end
end

-- What the loggers count of one finished answer; `decode_us` from first token to end, of a stream.
local function note(h, read, decode_us, retried)
  local decode = math.max(0, read.completion - 1)
  set(h, "completion_tokens", read.completion)
  set(h, "prompt_tokens", read.prompt)
  set(h, "decode_tokens", decode)
  set(h, "tokens", "1")
  if retried then return end
  if read.accepted and read.drafted and read.rounds then
    set(h, "accepted", read.accepted)
    set(h, "drafted", read.drafted)
    set(h, "rounds", read.rounds)
    set(h, "speculative", "1")
  else
    set(h, "plain", "1")
  end
  -- A stream of one token has a beginning and an end but no decode step between them.
  if not decode_us then
    set(h, "prompt_class", upper_bound(PROMPT_TOKENS, read.prompt))
    set(h, "timed_whole", "1")
  elseif decode > 0 then
    set(h, "tpot", upper_bound(BOUNDS_US, decode_us / decode))
    set(h, "timed_stream", "1")
  end
end

local function on_request(h)
  local headers = h:headers()
  local fleet = h:virtualHost():metadata():get(NAMESPACE) or {}
  set(h, "seen", "1")
  set(h, "began", now(h))
  local coding = headers:get("content-encoding")
  if headers:get(":method") ~= "POST" or (coding and coding ~= "identity") then return end
  local body = h:body()
  if not body or body:length() == 0 then return end
  -- A body that came in chunks and is over the limit by less than the room that is left for our own edits.
  if fleet.limit and body:length() > fleet.limit then h:respond({ [":status"] = "413" }, "") end
  local path = match(h:headers():get(":path") or "", "^[^?]*")
  local raw = body:getBytes(0, body:length())
  local is = classify(raw, path, fleet)
  if not is.json then return end
  if is.prompt then
    local hash, problem = prompt_hash(fleet.hash_key, sub(raw, is.prompt[1], is.prompt[2]))
    if hash then set(h, "prompt_hash", hash) end
    if problem then h:logWarn("specfleet filter: prompts are not hashed: " .. problem) end
  end
  if is.model then set(h, "model", is.model) end
  if is.format then set(h, "format", is.format) end
  if is.tools then set(h, "tools", "1") end
  if is.ineligible then set(h, "ineligible", "1") end
  if is.measure then set(h, "measure", "1") end
  if is.hide then set(h, "hide", "1") end
  h:clearRouteCache()
  if is.body then
    local length = body:setBytes(is.body)
    headers = h:headers()
    if headers:get("content-length") then headers:replace("content-length", tostring(length)) end
  end
end

local function read_stream(h, known, retried)
  local stream, first = new_stream(known.hide == "1"), nil
  for chunk in h:bodyChunks() do
    local length = chunk:length()
    if length > 0 then
      if not first then
        first = now(h)
        begin_body(h, known, true, first)
      end
      local raw = chunk:getBytes(0, length)
      local ok, out = pcall(stream_step, stream, raw)
      if not ok then
        chunk:setBytes(stream.rest .. raw)
        error(out, 0)
      end
      if out then chunk:setBytes(out) end
    end
  end
  if stream.figures then note(h, stream.figures, now(h) - first, retried) end
end

local function read_whole(h, known, retried)
  local parts, size = {}, 0
  for chunk in h:bodyChunks() do
    local length = chunk:length()
    if length > 0 then
      if size == 0 then begin_body(h, known, false) end
      size = size + length
      if size > MAX_ANSWER_BYTES then return end
      parts[#parts + 1] = chunk:getBytes(0, length)
    end
  end
  local text = concat(parts)
  local keys = object(text)
  local read = keys and figures(text, keys)
  if read then note(h, read, nil, retried) end
end

local function on_response(h)
  local headers = h:headers()
  local attempts = tonumber(headers:get("x-envoy-attempt-count") or "1") or 1
  headers:remove("x-envoy-attempt-count")
  local known = h:streamInfo():dynamicMetadata():get(NAMESPACE)
  if not known or not known.seen then return end
  set(h, "phase", "headers")
  local status = headers:get(":status")
  local streamed = status == "200" and sub(headers:get("content-type") or "", 1, 17) == "text/event-stream"
  if status ~= "200" or not known.measure or headers:get("content-encoding") then
    for chunk in h:bodyChunks() do
      if chunk:length() > 0 then
        begin_body(h, known, streamed, streamed and now(h))
        return
      end
    end
    return
  end
  if streamed then
    read_stream(h, known, attempts > 1)
  else
    read_whole(h, known, attempts > 1)
  end
end

local function guarded(h, work)
  local ok, problem = pcall(work, h)
  if ok then return end
  pcall(function() h:streamInfo():dynamicMetadata():set(NAMESPACE, "lua_error", "1") end)
  h:logWarn("specfleet filter: " .. tostring(problem))
end

function envoy_on_request(h) guarded(h, on_request) end

function envoy_on_response(h) guarded(h, on_response) end

-- The pure functions, for the unit tests.
specfleet = {
  members = members, object = object, unescape = unescape, truthy = truthy, classify = classify, figures = figures,
  new_stream = new_stream, stream_step = stream_step, upper_bound = upper_bound, bounds_us = BOUNDS_US,
  prompt_tokens = PROMPT_TOKENS, hmac = hmac, prompt_hash = prompt_hash,
}
