-- The members with the highest scores among those that pass a filter. KEYS: a sorted set, and a hash with a field for each member.
-- ARGV: the number of members wanted, and the value of their field. Returns members and scores in turn.
local wanted, leaders, start = 2 * tonumber(ARGV[1]), {}, 0
repeat
  local found = redis.call('ZREVRANGE', KEYS[1], start, start + 99, 'WITHSCORES')
  for i = 1, #found, 2 do
    if #leaders < wanted and redis.call('HGET', KEYS[2], found[i]) == ARGV[2] then
      leaders[#leaders + 1] = found[i]
      leaders[#leaders + 1] = found[i + 1]
    end
  end
  start = start + 100
until #leaders >= wanted or #found == 0
return leaders
