
    if foreign then
      if flags >= 2 then return pack('>BI7B', 2, now, i - 1) end
      -- Not `false`, so that whatever is there is written over.
      s, reset = true, reset + 2 ^ (i - 1)
    end
    if kind > 0 then
      if pass == 1 then old[i], fits[i] = s, allowed end
      if op == TAKE and not allowed then refused = true end
      answers[i], new[i], lasts[i] = answer, value, floor(full_in / 1000) + 1 + margin
    end
    from = at_next
  end

  if pass == 1 and refused and charges > 1 then
    pass = 2
  else
    if round >= repeats then break end
    -- A round that changes nothing is the last: those after it would say the same.
    local changed = false
    for i = 1, charges do
      if new[i] ~= old[i] then changed = true end
    end
    if not changed then break end
    if round == 1 then old, told = {}, {} end
    told[round] = table.concat(answers)
    refused, pass, round = false, 1, round + 1
  end
until false

for i = 1, charges do
  -- A state that stays as it is keeps its expiry as well.
  if new[i] ~= first[i] then
    if new[i] then
      call('SET', keys[i], new[i], 'PX', lasts[i])
    else
      call('DEL', keys[i])
    end
  end
end
local head = pack('>BI7I2', 0, now, reset)
if charges == 1 and not told then return head .. answers[1] end
return head .. (told and table.concat(told) or '') .. table.concat(answers)
