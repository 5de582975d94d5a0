-- Means of a stream's values over spans of time. KEYS: the stream. ARGV: the field with the values, and the span in milliseconds.
-- Returns for each span with values its start in milliseconds, the number of values, and their mean.
local field, span, spans, last = ARGV[1], tonumber(ARGV[2]), {}, nil
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '-', '+')) do
  local ms = tonumber(string.match(entry[1], '^%d+'))
  for i = 1, #entry[2], 2 do
    local value = entry[2][i] == field and tonumber(entry[2][i + 1])
    if value then
      local start = ms - ms % span
      if not last or last[1] ~= start then
        last = {start, 0, 0}
        spans[#spans + 1] = last
      end
      last[2], last[3] = last[2] + 1, last[3] + value
    end
  end
end
for _, one in ipairs(spans) do one[3] = string.format('%.17g', one[3] / one[2]) end
return spans
