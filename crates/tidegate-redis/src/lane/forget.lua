-- Forgets a key's state, and keeps the leases around it: who holds one spends it, whatever becomes of
-- the state. Leases that have expired go with the state, for they would be charged to what follows.
-- The other members of the key's family stay as they are.
--
-- KEYS     the name of the family
-- ARGV     1 where the server's clock is that of the leases, and which member of the family it is
local s, now = redis.pcall('GET', KEYS[1]), 0
local unpack, sub, byte = struct.unpack, string.sub, string.byte
if ARGV[1] == '1' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local members, at = {}, 0
if type(s) == 'string' and byte(s) == 103 then
  at = 2
  while at + 11 <= #s do
    local head, width, start = sub(s, at, at + 10), byte(s, at + 11), at + 12
    if width == 255 and at + 15 <= #s then width, start = unpack('>I4', s, start), start + 4 end
    local after = start + width
    local state = sub(s, start, after - 1)
    if sub(head, 1, 8) ~= ARGV[2] then
      members[#members + 1] = sub(s, at, after - 1)
    elseif byte(state) == 76 then
      local count, kept = byte(state, 2) or 0, {}
      for k = 1, #state >= 8 + 35 * count and count or 0 do
        local lease = 35 * k - 26
        if unpack('>I7', state, lease + 28) > now then kept[#kept + 1] = sub(state, lease, lease + 34) end
      end
      if #kept > 0 then
        state = string.char(76, #kept) .. sub(state, 3, 8) .. table.concat(kept)
        width = #state < 255 and string.char(#state) or struct.pack('>BI4', 255, #state)
        members[#members + 1] = head .. width .. state
      end
    end
    at = after
  end
end
-- What is not a family from end to end is foreign, and goes.
if #members > 0 and at == #s + 1 then return redis.call('SET', KEYS[1], 'g' .. table.concat(members), 'KEEPTTL') end
return redis.call('DEL', KEYS[1])
