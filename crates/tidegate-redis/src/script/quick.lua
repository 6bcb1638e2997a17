
-- What is asked most often goes no further than this: takes from token buckets of one family, all of
-- whose units are below 2^53, that are all there or all not, that all go through, and that are neither
-- in debt nor leased from. Fewer calls of functions and no tables: those are what a script's time goes
-- to. The reply is what was written, and who asked works out the rest. It is the arithmetic of
-- `plain.lua`. Where it is something else, nothing has happened yet, and all below begins anew.
local fetched
if flags >= 4 and repeats == 1 then
  fetched = pcall('GET', keys[1])
  local at, from, longest, text = 2, 16, 0, pack('>BI7B', 3, now, 103)
  if not fetched or #fetched == 23 * charges + 1 and string.byte(fetched) == 103 then
    for i = 1, charges do
      local member, tokens, depth, cost = unpack('>c8I4xxxxxxxI7I7', charged, from + 4)
      local used = 0
      if fetched then
        local whose, width, tag, time_h, time_l, part = unpack('>c8xxxBBI3I4I3', fetched, at)
        if whose ~= member or width ~= 11 or tag ~= 98 then break end
        local ahead = time_h * 4294967296 + time_l - now
        if ahead >= 0 then
          used = ahead * tokens + (part < tokens and part or tokens)
          if used > depth + tokens * 1000000 then used = depth end
        end
        at = at + 23
      end
      used = used + cost
      if used > depth then break end
      local part = used % tokens
      local full = (used - part) / tokens
      if full >= longest then longest = part > 0 and full + 1 or full end
      full = now + full
      local low = full % 4294967296
      local high, ends = (full - low) / 4294967296, full + margin * 1000
      text = text .. pack('>c0I3BBI3I4I3', member, (ends - ends % 4294967296) / 4294967296 + 1, 11, 98, high, low, part)
      from = from + 37
    end
    if #text == 23 * charges + 9 then
      call('SET', keys[1], string.sub(text, 9), 'PX', string.format('%d', longest / 1000 + 1 + margin))
      return text
    end
  end
end
