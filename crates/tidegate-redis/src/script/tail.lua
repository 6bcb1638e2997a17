
    if foreign then
      if flags % 4 >= 2 then return pack('>BI7B', 2, now, i - 1) end
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

for place = 1, #keys do
  local family, changed, longest, others, text = families[place], false, 0, 0, 'g'
  for i = 1, charges do
    if places[i] == place then
      local value, lasting = new[i], lasts[i]
      if value ~= first[i] then changed = true end
      if value then
        if lasting > longest then longest = lasting end
        -- When it says nothing any more, in steps of 2^32 microseconds.
        local ends = floor((now + lasting * 1000) / 4294967296) + 1
        if ends > 16777215 then ends = 16777215 end
        if #value < 255 then
          text = text .. members[i] .. pack('>I3B', ends, #value) .. value
        else
          text = text .. members[i] .. pack('>I3BI4', ends, 255, #value) .. value
        end
      end
    end
  end
  -- States that stay as they are keep their expiry as well.
  if changed then
    if family and family ~= true then
      -- The other members stay, and those that are over go. Clocks of callers jump, and end nothing.
      local at = 2
      while at <= #family do
        local member, ends, width = unpack('>c8I3B', family, at)
        local after = at + 12 + (width < 255 and width or 4 + unpack('>I4', family, at + 12))
        for i = 1, charges do
          if members[i] == member and places[i] == place then member = nil end
        end
        local lasting = ends * 4294967.296 - now / 1000
        local tag = byte(family, at + 12)
        if tag == 98 and width == 11 or tag == 102 and width > 7 and width < 255 then
          -- A bucket and a fixed window say it themselves, to the microsecond.
          local high, low = unpack('>I3I4', family, at + 13)
          local exactly = (high * 4294967296 + low - now) / 1000 + 1 + margin
          if exactly < lasting then lasting = exactly end
        end
        if member and (lasting > 0 or flags % 2 == 1) then
          text = text .. sub(family, at, after - 1)
          if lasting < margin then lasting = margin end
          if lasting > others then others = lasting end
        end
        at = after
      end
      -- The string lasts as long as each of them already, and what is said of their ends is rounded up by an
      -- hour and more.
      if others > 0 then
        local left = call('PTTL', keys[place])
        if left < 0 or left > others then left = others end
        if left > longest then longest = left end
      end
    end
    if #text > 1 then
      call('SET', keys[place], text, 'PX', string.format('%d', longest))
    else
      call('DEL', keys[place])
    end
  end
end
local head = pack('>BI7I2', 0, now, reset)
if charges == 1 and not told then return head .. answers[1] end
return head .. (told and table.concat(told) or '') .. table.concat(answers)
