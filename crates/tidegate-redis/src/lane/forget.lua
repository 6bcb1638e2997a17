-- Forgets a key's state, and keeps the leases around it: who holds one spends it, whatever becomes of
-- the state. Leases that have expired go with the state, for they would be charged to what follows.
--
-- KEYS     the key
-- ARGV     1 where the server's clock is that of the leases
local s = redis.pcall('GET', KEYS[1])
if type(s) == 'string' and string.byte(s) == 76 then
  local count, now, kept = string.byte(s, 2) or 0, 0, {}
  if ARGV[1] == '1' then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  if #s >= 8 + 35 * count then
    for k = 1, count do
      local at = 35 * k - 26
      if struct.unpack('>I7', s, at + 28) > now then kept[#kept + 1] = string.sub(s, at, at + 34) end
    end
    if #kept > 0 then
      local head = string.char(76, #kept) .. string.sub(s, 3, 8)
      return redis.call('SET', KEYS[1], head .. table.concat(kept), 'KEEPTTL')
    end
  end
end
return redis.call('DEL', KEYS[1])
