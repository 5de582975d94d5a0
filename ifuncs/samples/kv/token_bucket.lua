-- Takes tokens from a bucket that fills up again. KEYS: the bucket, a hash. ARGV: its capacity in tokens, the tokens that
-- come in a second, the tokens wanted, and the time in microseconds. Without a time the server's clock counts.
-- Returns 1 if the tokens were taken, otherwise 0, and the tokens left.
local most, rate, wanted, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local saved = redis.call('HMGET', KEYS[1], 'tokens', 'time')
local tokens, before = tonumber(saved[1]) or most, tonumber(saved[2]) or now
tokens = math.min(most, tokens + math.max(0, now - before) * rate / 1000000)
local taken = tokens >= wanted
if taken then tokens = tokens - wanted end
local text = string.format('%.17g', tokens)
redis.call('HSET', KEYS[1], 'tokens', text, 'time', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.floor(most / rate * 1000) + 1))
return {taken and 1 or 0, text}
