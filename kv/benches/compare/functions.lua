#!lua name=compare

redis.register_function{function_name = 'empty', callback = function() end, flags = {'no-writes'}}

redis.register_function{function_name = 'chase', flags = {'no-writes'}, callback = function(keys)
  local key, count = keys[1], 0
  while true do
    local next = redis.call('GET', key)
    if not next then return {count, key} end
    key, count = next, count + 1
  end
end}

redis.register_function{function_name = 'nearest', flags = {'no-writes'}, callback = function(keys, args)
  local dims = #args[1] / 4
  local format = '<' .. string.rep('f', dims)
  local query = {struct.unpack(format, args[1])}
  local vectors = redis.call('GET', keys[1])
  local best, nearest = math.huge, 0
  local unpack, step = struct.unpack, 4 * dims
  for index = 0, #vectors / step - 1 do
    local vector, distance = {unpack(format, vectors, index * step + 1)}, 0
    for i = 1, dims do
      local d = vector[i] - query[i]
      distance = distance + d * d
    end
    if distance < best then best, nearest = distance, index end
  end
  return nearest
end}

redis.register_function{function_name = 'filter_aggregate', flags = {'no-writes'}, callback = function(keys, args)
  local prefix, field, least, greatest, summed = args[1], args[2], tonumber(args[3]), tonumber(args[4]), args[5]
  local position, count, sum = '0', 0, 0
  repeat
    local found = redis.call('SCAN', position, 'MATCH', prefix .. '*', 'COUNT', 1000)
    position = found[1]
    for _, name in ipairs(found[2]) do
      local value = tonumber(redis.call('HGET', name, field))
      if value and value >= least and value <= greatest then
        count, sum = count + 1, sum + tonumber(redis.call('HGET', name, summed))
      end
    end
  until position == '0'
  return {count, sum}
end}

redis.register_function{function_name = 'topk', flags = {'no-writes'}, callback = function(keys, args)
  local dims, wanted = #args[1] / 4, tonumber(args[2])
  local format = '<' .. string.rep('f', dims)
  local query = {struct.unpack(format, args[1])}
  local vectors = redis.call('GET', keys[1])
  local best, indexes = {}, {}
  local unpack, step = struct.unpack, 4 * dims
  for index = 0, #vectors / step - 1 do
    local vector, distance = {unpack(format, vectors, index * step + 1)}, 0
    for i = 1, dims do
      local d = vector[i] - query[i]
      distance = distance + d * d
    end
    if #best < wanted or distance < best[#best] then
      local at = math.min(#best + 1, wanted)
      while at > 1 and distance < best[at - 1] do
        best[at], indexes[at] = best[at - 1], indexes[at - 1]
        at = at - 1
      end
      best[at], indexes[at] = distance, index
    end
  end
  return indexes
end}

redis.register_function{function_name = 'bloom', flags = {'no-writes'}, callback = function(keys, args)
  for _, bit in ipairs(args) do
    if redis.call('GETBIT', keys[1], bit) == 0 then return 0 end
  end
  return 1
end}

redis.register_function{function_name = 'json_path', flags = {'no-writes'}, callback = function(keys, args)
  local value = cjson.decode(redis.call('GET', keys[1]))
  for _, step in ipairs(args) do
    local index = tonumber(step)
    value = value[index and index + 1 or step]
  end
  return value
end}
