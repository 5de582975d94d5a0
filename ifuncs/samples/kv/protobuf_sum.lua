-- Adds up a field of protobuf messages. KEYS: a string of messages, each with its length in front as a varint. ARGV: the number of
-- the field. Its values are varints. Returns the sum, exact up to 2^53.
local data, field, at, sum = redis.call('GET', KEYS[1]) or '', tonumber(ARGV[1]), 1, 0
local byte = string.byte
local function varint()
  local value, scale = 0, 1
  while true do
    local part = byte(data, at)
    if not part then error('a message is cut') end
    at = at + 1
    value = value + part % 128 * scale
    if part < 128 then return value end
    scale = scale * 128
  end
end
while at <= #data do
  local len = varint()
  local stop = at + len
  while at < stop do
    local tag = varint()
    local kind = tag % 8
    if kind == 0 then
      local value = varint()
      if (tag - kind) / 8 == field then sum = sum + value end
    elseif kind == 1 then at = at + 8
    elseif kind == 5 then at = at + 4
    elseif kind == 2 then
      len = varint()
      at = at + len
    else
      error('a message has a field of an unknown kind')
    end
  end
end
return sum
