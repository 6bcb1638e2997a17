
local byte, sub, find, floor = string.byte, string.sub, string.find, math.floor
local TAKE, PEEK, DEBIT, REFUND, RELEASE, RENEW = 1, 2, 3, 4, 5, 6
local SKEW = 1000000

-- What was there, what is to be there (`false` for nothing), for how many milliseconds, the answers,
-- and which takes fit by themselves.
local old, new, lasts, answers, fits = {nil,nil,nil}, {nil,nil,nil}, {nil,nil,nil}, {nil,nil,nil}, {nil,nil,nil}
-- Each family as it was (`false` for none, `true` for what is foreign), and where in it the next member
-- stands. Of each charge, its family and member.
local families, reads, places, members = {nil}, {nil}, {nil,nil,nil}, {nil,nil,nil}
-- Equal requests that came together are decided one after the other, a round for each; what was
-- there before the first one, and the answers of the rounds that are over.
local first, told, round = old, nil, 1
-- The leases around the states, as the first round left them.
local held
local refused, reset, pass = false, 0, 1

repeat
  local from = 16
  for i = 1, charges do
    local size, kind, op, place = byte(charged, from, from + 3)
    local a, at_next, s, foreign = charged, from + size, false, false
    if pass > 1 then
      -- Another limit refuses, so a take that fits by itself only looks. All else stays as it is.
      s = old[i]
      if op == TAKE and fits[i] then op = PEEK else kind = 0 end
    elseif round > 1 then
      s = new[i]
    else
      local member, family = sub(charged, from + 4, from + 11), families[place]
      places[i], members[i] = place, member
      if family == nil then
        if place == 1 and fetched ~= nil then family = fetched else family = pcall('GET', keys[place]) end
        if type(family) == 'string' then
          -- From one member to the next, the last of which ends where the string does.
          local at, bytes = 2, byte(family) == 103 and #family or 0
          while at <= bytes do
            local width = byte(family, at + 11) or bytes
            if width == 255 and at + 15 <= bytes then width = 4 + unpack('>I4', family, at + 12) end
            at = at + 12 + width
          end
          if at ~= bytes + 1 then family = true end
        elseif type(family) == 'table' then
          if not find(family.err, 'WRONGTYPE', 1, true) then return family end
          family = true
        end
        families[place], reads[place] = family, 2
      end
      if family == true then
        foreign = true
      elseif family then
        local at, width = reads[place], nil
        if sub(family, at, at + 7) ~= member then
          -- They were written in another order, or by a request for others.
          at = 2
          while at <= #family and sub(family, at, at + 7) ~= member do
            width = byte(family, at + 11)
            at = at + 12 + (width < 255 and width or 4 + unpack('>I4', family, at + 12))
          end
        end
        width, at = byte(family, at + 11), at + 12
        if width then
          if width == 255 then width, at = unpack('>I4', family, at), at + 4 end
          s = sub(family, at, at + width - 1)
          reads[place] = at + width
        end
      end
    end
    from = from + 12
    -- What was foreign is so once.
    if s == true then s = false end
