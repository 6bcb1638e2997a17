
    -- Token bucket (1), leaky bucket (2), stepped bucket (3). The last one is the first one with
    -- steps for ticks: a tick brings `tokens` units, a token is `ticks` units.
    elseif kind <= 3 then
      local tokens, ticks, depth_h, depth_l, cut_h, cut_l, cost_h, cost_l, period, taken, last_h, last_l =
        unpack('>I4I7I6I6I6I6I6I6I7I7I6I3', a, from)
      local base = tokens * 1048576
      local tick = kind == 3 and floor(now / period) or now
      local tick_h, tick_l = floor(tick / 1048576), tick % 1048576

      -- What is missing from a full bucket.
      local used_h, used_l, owes = 0, 0, false
      if s then
        local tag = byte(s)
        if (#s == 11 or #s == 12) and (kind == 3 and (tag == 115 or tag == 83) or kind ~= 3 and (tag == 98 or tag == 66)) then
          local time_h, time_l, part = unpack(#s == 11 and '>I3I4I3' or '>I4I4I3', s, 2)
          local h, l = time_h * 4096 + floor(time_l / 1048576) - tick_h, time_l % 1048576 - tick_l
          owes = tag < 97
          if kind == 3 then
            -- The last step brings `part + 1`, the others before it a whole count each.
            if l < 1 then h, l = h - 1, l + 1048576 end
            if h >= 0 then
              l = (l - 1) * tokens + part + 1
              local carry = floor(l / base)
              used_h, used_l = h + carry, l - carry * base
            end
          elseif h > 0 or h == 0 and l >= 0 then
            -- A fraction that this pace does not have was written at another: up to the next tick.
            l = l * tokens + (part < tokens and part or tokens)
            if l < 0 then h, l = h - 1, l + base elseif l >= base then h, l = h + 1, l - base end
            -- No bucket lies further ahead than the longest debt.
            if h >= 4398046511104 then h, l = 4398046511104, 0 end
            used_h, used_l = h, l
          end
          -- More than a clock that is a little late explains: it was set back, or the limit lowered.
          if not owes and (used_h > cut_h or used_h == cut_h and used_l > cut_l) then
            used_h, used_l = depth_h, depth_l
          end
        else
          foreign = true
        end
      end

      local wait_h, wait_l = 0, 0
      if op == TAKE or op == PEEK then
        local h, l = used_h + cost_h, used_l + cost_l
        if l >= base then h, l = h + 1, l - base end
        if h < depth_h or h == depth_h and l <= depth_l then
          if kind == 2 then wait_h, wait_l = used_h, used_l end
          if op == TAKE then used_h, used_l = h, l end
        else
          allowed, wait_h, wait_l = false, h - depth_h, l - depth_l
          if wait_l < 0 then wait_h, wait_l = wait_h - 1, wait_l + base end
        end
      elseif op == DEBIT then
        used_h, used_l, owes = used_h + cost_h, used_l + cost_l, true
        if used_l >= base then used_h, used_l = used_h + 1, used_l - base end
        if kind ~= 3 and used_h >= 4398046511104 then used_h, used_l = 4398046511104, 0 end
      elseif op == REFUND then
        -- What has come back by itself since then is not given a second time.
        local h, l, since = cost_h, cost_l, tick - floor(taken / period)
        if since > 0 then
          h, l = h - floor(since / 1048576), l - since % 1048576 * tokens
          if l < 0 then h, l = h - 1, l + base end
        end
        if h >= 0 then
          used_h, used_l = used_h - h, used_l - l
          if used_l < 0 then used_h, used_l = used_h - 1, used_l + base end
          if used_h < 0 then used_h, used_l = 0, 0 end
        end
      end

      -- What is left, in whole tokens.
      local left_h, left_l, remaining = depth_h - used_h, depth_l - used_l, 0
      if left_l < 0 then left_h, left_l = left_h - 1, left_l + base end
      if left_h >= 0 then
        local units = left_h * base + left_l
        if units < 9007199254740992 then
          remaining = floor(units / ticks)
        else
          local whole = floor(base / ticks)
          local rest, over, digit, h = base - whole * ticks, 0, 549755813888, left_h
          repeat
            local d = floor(h / digit)
            h = h - d * digit
            local x = over * 8 + d * rest
            local y = floor(x / ticks)
            remaining, over, digit = remaining * 8 + d * whole + y, x - y * ticks, digit / 8
          until digit < 1
          remaining = remaining + floor((over + left_l) / ticks)
        end
      end

      -- Units to ticks: those until it is full, and those to wait, are rounded up.
      local full_l = floor(used_l / tokens)
      local part = used_l - full_l * tokens
      local full_h, up_l = used_h, part > 0 and full_l + 1 or full_l
      wait_l = -floor(-wait_l / tokens)
      if used_h > 0 or used_l > 0 then
        local h, l = tick_h + used_h, tick_l + (kind == 3 and up_l or full_l)
        if l >= 1048576 then h, l = h + 1, l - 1048576 end
        local tag = owes and left_h < 0 and 66 or 98
        if kind == 3 then
          -- A debt ends no later than at the last step there is.
          if h > last_h or h == last_h and l > last_l then h, l = last_h, last_l end
          full_h, up_l = h - tick_h, l - tick_l
          if up_l < 0 then full_h, up_l = full_h - 1, up_l + 1048576 end
          tag, part = tag + 17, (part > 0 and part or tokens) - 1
        end
        local time_h = floor(h / 4096)
        value = pack(time_h < 16777216 and '>BI3I4I3' or '>BI4I4I3', tag, time_h, (h - time_h * 4096) * 1048576 + l, part)
        full_in = (full_h * 1048576 + up_l) * period - now % period
      end
      answer = pack('>BI6I3I7I6I3', allowed and 0 or 1, wait_h, wait_l, remaining, full_h, up_l)
