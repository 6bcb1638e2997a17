    if kind ~= 11 then
    -- Leases stand around the state they reserve from: `L`, how many, how long the state is to be kept
    -- after the last of them has expired, then each, then the state itself, if there is one. A key
    -- without leases pays for this with two comparisons. On one with leases, what is asked becomes a
    -- row of operations on the state: each goes through the branches below, and `step` says which
    -- one that is. `lease.rs` says why this is never over.
    local step, real, given, asked, leases, occupied, hold, mine = 0, now, a, op, nil, 0, 0, nil
    local outer, changed, priced, lacking, spent, after, granted = s, false, nil, 0, 0, 0, 0
    local kept
    if kind > 0 and (op > RENEW or s and byte(s) == 76) then
      step, leases = 1, {}
      kept = round > 1 and held and held[i]
      if kept then
        -- All rounds are at one instant, so that nothing expires after the first.
        step, occupied = 2, kept[2]
        s = #s > #kept[1] and sub(s, #kept[1] + 1)
      elseif s and byte(s) == 76 then
        local count = byte(s, 2) or 0
        if #s >= 8 + 35 * count and kind ~= 2 and kind ~= 10 then
          hold = unpack('>I6', s, 3)
          for k = 1, count do
            local at = 35 * k - 26
            local sequence, sum, reported, expires = unpack('>I4I6I6I7', s, at + 12)
            if reported > sum then foreign = true end
            -- No lease is longer than that: the clock was set back, and it lasts from now on.
            if expires > now + 600000 then expires, changed = now + 600000, true end
            leases[k] = { sub(s, at, at + 11), sequence, sum, reported, expires }
            occupied = occupied + sum - reported
          end
          s = #s > 8 + 35 * count and sub(s, 9 + 35 * count)
        else
          foreign = true
        end
        if foreign then s, leases, occupied, hold = false, {}, 0, 0 end
      end
      -- The argument with another cost, and whether that never fits.
      priced = function(cost)
        if kind > 3 then
          local at, most = from + (kind <= 6 and 12 or kind == 9 and 3 or 6), nil
          if kind == 9 then most = unpack('>I3', given, from) else most = unpack('>I6', given, from) end
          if kind == 8 then
            local per_slot = unpack('>I6', given, from + 12)
            if per_slot < most then most = per_slot end
          end
          return sub(given, 1, at - 1) .. pack('>I6', cost) .. sub(given, at + 6), cost > most
        end
        local tokens, ticks, depth_h, depth_l = unpack('>I4I7I6I6', given, from)
        local base, h, l, digit = tokens * 1048576, 0, 0, 35184372088832
        repeat
          local d = floor(cost / digit)
          cost = cost - d * digit
          local t = l * 8 + d * ticks
          local carry = floor(t / base)
          h, l, digit = h * 8 + carry, t - carry * base, digit / 8
        until digit < 1
        -- As much as any debt.
        if h >= 8796093022208 then h, l = 8796093022208, 0 end
        local never = h > depth_h or h == depth_h and l > depth_l
        return sub(given, 1, from + 34) .. pack('>I6I6', h, l) .. sub(given, from + 47), never
      end
    end

    repeat
      allowed, answer, value, full_in = true, nil, false, 0
      if step == 1 then
        -- Leases that have expired are charged in full, each when it expired, before all else.
        local first
        repeat
          first = nil
          for k = 1, #leases do
            if leases[k][5] <= real and (not first or leases[k][5] < leases[first][5]) then first = k end
          end
          if first then
            local lease = table.remove(leases, first)
            local rest = lease[3] - lease[4]
            occupied, changed, now = occupied - rest, true, lease[5]
            -- Of a window of the calendar that is long over nothing is known, nor need it be.
            if rest == 0 or kind == 6 and (now < unpack('>I7', given, from + 32) or now >= unpack('>I7', given, from + 53)) then
              first = nil
            else
              op, a = DEBIT, priced(rest)
              break
            end
          else
            step, now = 2, real
          end
        until step == 2
      end

      if step == 2 and asked <= RENEW then
        step, op, a = 3, asked == PEEK and TAKE or asked, given
      elseif step == 2 then
        -- A request for a lease: what was spent since the last one is charged now.
        local id, sequence, total, need, waiting, want, ttl, keep = nil, unpack('>I4I6I6I6I6I4I6', given, #given - 37)
        id = sub(given, #given - 49, #given - 38)
        for k = 1, #leases do
          if leases[k][1] == id then mine = k end
        end
        if not mine and asked == 7 and #leases < 128 then
          mine = #leases + 1
          leases[mine] = { id, 0, 0, 0, 0 }
        end
        step, op, a = 7, PEEK, priced(0)
        local lease = mine and leases[mine]
        if lease then
          granted = lease[3]
          if sequence > lease[2] then
            changed, hold = true, keep > hold and keep or hold
            local held = lease[3] - lease[4]
            lease[2] = sequence
            if total > lease[4] then spent, lease[4] = total - lease[4], total end
            if lease[3] < lease[4] then lease[3] = lease[4] end
            if asked ~= 9 and lease[3] - lease[4] > want then lease[3] = lease[4] + want end
            granted, lease[5] = lease[3], real + ttl * 1000
            local rest = lease[3] - lease[4]
            if asked == 9 then
              table.remove(leases, mine)
              rest = 0
            else
              if need > rest then lacking = need - rest end
              step = 6
            end
            occupied = occupied - held + rest
            if spent > 17592186044416 then spent = 17592186044416 end
            after = { need, waiting, want, step }
            if spent > 0 then step, op, a = 5, DEBIT, priced(spent) else a = priced(lacking) end
          end
        end
      end

    if kind == 0 then
      answer = answers[i]
