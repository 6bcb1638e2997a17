
    -- Concurrency (10).
    else
      local limit, cost, expiry, taken, lease_h, lease_l = unpack('>I3I7I7I7I7I2', a, from)
      -- The leases, oldest first, 20 bytes each: the number (a pair: high * 1024 + low), when it was
      -- taken or last renewed, and its cost.
      local last_h, last_l, unnamed, unnamed_at, held, body = 0, 0, 0, 0, 0, ''
      local function number(k) return unpack('>I7I2', body, k * 20 - 19) end
      local function since(k) return (unpack('>I7', body, k * 20 - 10)) end
      local function price(k) return (unpack('>I4', body, k * 20 - 3)) end
      local function cut_out(k) body = sub(body, 1, k * 20 - 20) .. sub(body, k * 20 + 1) end
      local function newest_at()
        local time = #body > 0 and since(#body / 20) or 0
        return unnamed > 0 and unnamed_at > time and unnamed_at or time
      end
      -- How many leases were taken at or before a time.
      local function taken_until(time)
        local low, high = 0, #body / 20
        while low < high do
          local middle = floor((low + high + 1) / 2)
          if since(middle) > time then high = middle - 1 else low = middle end
        end
        return low
      end

      local at = now
      if s then
        if byte(s) == 99 and #s >= 31 and (#s - 31) % 20 == 0 then
          last_h, last_l, unnamed, unnamed_at, held = unpack('>I7I2I7I7I7', s, 2)
          body = sub(s, 32)
          if newest_at() - now > SKEW then
            -- The clock was set back: what was taken later than now lasts from now on.
            local kept = taken_until(now)
            local parts = { sub(body, 1, kept * 20) }
            for k = kept + 1, #body / 20 do
              local h, l = number(k)
              parts[#parts + 1] = pack('>I7I2I7I4', h, l, now, price(k))
            end
            body = table.concat(parts)
            if unnamed_at > now then unnamed_at = now end
          end
          local newest = newest_at()
          if newest > now then at = newest end
          local expired = at - expiry
          if expired >= 0 then
            local gone = taken_until(expired)
            for k = 1, gone do held = held - price(k) end
            if gone > 0 then body = sub(body, gone * 20 + 1) end
            if unnamed_at <= expired then held, unnamed = held - unnamed, 0 end
          end
        else
          foreign = true
        end
      end

      local wait, granted, given_h, given_l = 0, false, 0, 0
      local function expires_in(time)
        local micros = time + expiry - now
        return micros > 0 and micros or 0
      end
      if op == TAKE or op == PEEK then
        local over = held + cost - limit
        if over <= 0 then
          granted = op == TAKE and cost > 0
        else
          allowed = false
          -- When enough will have expired. What has no lease stands among the others by its time.
          local place, found = unnamed > 0 and taken_until(unnamed_at) or -1, nil
          for k = 0, #body / 20 do
            if k > 0 then over, found = over - price(k), since(k) end
            if over > 0 and k == place then over, found = over - unnamed, unnamed_at end
            if over <= 0 then break end
          end
          wait = expires_in(found or newest_at())
        end
      elseif op == DEBIT and cost > 0 then
        if #body / 20 < limit then
          granted = true
          if cost > 4294967295 then cost = 4294967295 end
        else
          local more = unnamed + cost
          if more > 4503599627370496 then more = 4503599627370496 end
          held, unnamed, unnamed_at = held + (more - unnamed), more, at
        end
      elseif op == REFUND then
        -- From the leases that were taken at that very time, newest first.
        if taken > at then taken = at end
        local k = taken_until(taken)
        while cost > 0 and k > 0 and since(k) == taken do
          local c = price(k)
          if c < 4294967295 then
            local back = c < cost and c or cost
            held, cost = held - back, cost - back
            if back == c then
              cut_out(k)
            else
              body = sub(body, 1, k * 20 - 4) .. pack('>I4', c - back) .. sub(body, k * 20 + 1)
            end
          end
          k = k - 1
        end
      elseif op == RELEASE or op == RENEW then
        -- By its number, most often in order; those that were renewed are not. What looks like it may lie across two.
        local low, high, k = 1, #body / 20, nil
        while low <= high and not k do
          local middle = floor((low + high) / 2)
          local h, l = number(middle)
          if h == lease_h and l == lease_l then
            k = middle
          elseif h < lease_h or h == lease_h and l < lease_l then
            low = middle + 1
          else
            high = middle - 1
          end
        end
        local wanted = pack('>I7I2', lease_h, lease_l)
        local first = not k and find(body, wanted, 1, true)
        while first and not k do
          if first % 20 == 1 then k = (first + 19) / 20 else first = find(body, wanted, first + 1, true) end
        end
        if k then
          local c = price(k)
          cut_out(k)
          if op == RENEW then
            given_h, given_l = lease_h, lease_l
            body = body .. pack('>I7I2I7I4', lease_h, lease_l, at, c)
          else
            held = held - c
          end
        end
      end
      if granted then
        -- One above the last, and led by the clock, so that a state that was dropped does not give
        -- the same numbers again.
        last_l = last_l + 1
        if last_l == 1024 then last_h, last_l = last_h + 1, 0 end
        if last_h < at or last_h == at and last_l < 1 then last_h, last_l = at, 1 end
        given_h, given_l = last_h, last_l
        body = body .. pack('>I7I2I7I4', last_h, last_l, at, cost)
        held = held + cost
      end

      if held > 0 then
        full_in = expires_in(newest_at())
        value = pack('>BI7I2I7I7I7', 99, last_h, last_l, unnamed, unnamed_at, held) .. body
      end
      local left = limit - held
      answer = pack('>BI7I7I7I7I2', allowed and 0 or 1, wait, left > 0 and left or 0, full_in, given_h, given_l)
    end
