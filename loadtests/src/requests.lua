-- Requests made in advance, one after the other; the byte 1 in one of them stands for the next id of a file of ids.
-- wrk … -s requests.lua URL -- TEXTS [IDS FIRST]
local texts, ids, at, next_id = {}, nil, 0, 0
local threads = 0

local function content(path)
  local file = assert(io.open(path, "rb"))
  local bytes = file:read("*a")
  file:close()
  return bytes
end

-- Threads begin at different places.
function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

function init(args)
  for text in content(args[1]):gmatch("([^%z]+)%z") do
    local before, behind = text:match("^(.-)\1(.*)$")
    texts[#texts + 1] = before and {before, behind} or text
  end
  at = math.floor(number * #texts / 7)
  if args[2] then
    ids = content(args[2])
    next_id = (tonumber(args[3]) + math.floor(number * #ids / 14)) * 7 % #ids
  end
end

function request()
  at = at % #texts + 1
  local text = texts[at]
  if type(text) == "string" then return text end
  local id = ids:sub(next_id + 1, next_id + 7)
  next_id = (next_id + 7) % #ids
  return text[1] .. id .. text[2]
end

function done(summary, latency)
  local errors = summary.errors
  print("contest", summary.requests, summary.duration,
    errors.connect + errors.read + errors.write + errors.timeout, errors.status,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9))
end
