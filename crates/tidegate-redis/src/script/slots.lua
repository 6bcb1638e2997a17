
    -- Sliding slots.
    elseif kind == 8 then
      local count, cost, per_slot, length, slots, taken = unpack('>I6I6I6I7I2I7', a, from)
      local slot_now = floor(now / length)
      -- The counts of the slots up to the newest, `width` bytes each. The sum is cut at 2^53: one
      -- that is has to be summed up again.
      local newest, width, sum, body = slot_now, 1, 0, ''
      local function at(k) return (unpack('>I' .. width, body, k * width + 1)) end
      local function widened(most)
        local wider = most < 65536 and 2 or most < 4294967296 and 4 or 6
        local parts = {}
        for k = 0, #body / width - 1 do parts[k + 1] = pack('>I' .. wider, at(k)) end
        body, width = table.concat(parts), wider
      end

      if s then
        local w, len, before = byte(s, 2), nil, 0
        if byte(s) == 110 and #s > 18 and (w == 1 or w == 2 or w == 4 or w == 6)
          and (#s - 18) % w == 0 and #s - 18 <= 1024 * w then
          len, newest, sum = unpack('>I2I7I7', s, 3)
          -- How long a slot was. One that lies beyond all time is nobody's: where numbers are not
          -- exact, a loop over slots would not come to its end.
          before = len == slots and length or len > 0 and floor(length * slots / len) or 0
        end
        if before > 0 and newest * before < 9007199254740992 then
          width, body = w, sub(s, 19)
          -- Counts go to the slots that `target` names, in a row that ends with `last`.
          local function move(last, target)
            local kept, first, oldest = {}, newest - #body / width + 1, last
            for k = 0, #body / width - 1 do
              local c, slot = at(k), target(first + k)
              if slot > last then slot = last end
              if c > 0 and last - slot < slots then
                c = c + (kept[slot] or 0)
                kept[slot] = c < 35184372088832 and c or 35184372088832
                if slot < oldest then oldest = slot end
              end
            end
            local parts = {}
            sum = 0
            for slot = oldest, last do
              parts[slot - oldest + 1] = pack('>I6', kept[slot] or 0)
              sum = sum + (kept[slot] or 0)
            end
            newest, width, body = last, 6, table.concat(parts)
          end
          if len ~= slots then
            -- The number of slots was changed. Where in its slot a charge came is not known, so it
            -- goes to the last one that it may have come in.
            local latest = newest * before > now and newest * before or now
            move(floor(latest / length), function(slot)
              local from, to = -floor(-slot * before / length), floor((slot * before + before - 1) / length)
              return to > from and to or from
            end)
          end
          if newest * length - now > SKEW then
            -- The clock was set back: what lies ahead counts in the slot of now.
            move(slot_now, function(slot) return slot end)
          end
          local cut = sum >= 9007199254740992
          local steps = slot_now - newest
          if steps >= slots then
            sum, cut = 0, false
          elseif steps > 0 then
            body, newest = body .. string.rep('\0', steps * width), slot_now
            local gone = #body / width - slots
            for k = 0, gone - 1 do sum = sum - at(k) end
            if gone > 0 then body = sub(body, gone * width + 1) end
          end
          if cut then
            sum = 0
            for k = 0, #body / width - 1 do sum = sum + at(k) end
          end
        else
          newest, sum, foreign = slot_now, 0, true
        end
      end
      local cut = sum >= 9007199254740992
      if sum == 0 then newest, width, body = slot_now, 1, '\0' end

      local top = #body / width - 1
      local here = at(top)
      -- The first slot of the row, and from when on a slot counts no longer.
      local first = newest - top
      local function leaves_in(slot)
        local micros = (slot + slots) * length - now
        return micros > 0 and micros or 0
      end
      local wait, charged = 0, false
      if op == TAKE or op == PEEK then
        local most = count - cost
        if sum > most then
          allowed = false
          local k, over = 0, sum - most
          if cut then
            -- The sum is not exact, but those of the newest slots are.
            k, over = top, at(top)
            while over <= most and k > 0 do k = k - 1; over = over + at(k) end
          else
            over = over - at(0)
            while over > 0 and k < top do k = k + 1; over = over - at(k) end
          end
          wait = leaves_in(first + k)
        end
        if here + cost > per_slot then
          allowed = false
          local micros = (newest + 1) * length - now
          if micros > wait then wait = micros end
        end
        charged = allowed and op == TAKE
      elseif op == REFUND then
        local slot = floor(taken / length)
        local k = (slot < newest and slot or newest) - first
        if k >= 0 then
          local c = at(k)
          if c < 35184372088832 then
            local left = c > cost and c - cost or 0
            sum = sum - c + left
            body = sub(body, 1, k * width) .. pack('>I' .. width, left) .. sub(body, (k + 1) * width + 1)
            if k == top then here = left end
          end
        end
      end
      if charged or op == DEBIT then
        local c = here + cost
        if c > 35184372088832 then c = 35184372088832 end
        if c >= 256 ^ width then widened(c) end
        sum, here = sum + c - here, c
        body = sub(body, 1, top * width) .. pack('>I' .. width, c)
      end

      if sum > 0 then
        local k = top
        while k > 0 and at(k) == 0 do k = k - 1 end
        full_in = leaves_in(first + k)
        local kept = (cut or sum > 9007199254740992) and 9007199254740992 or sum
        value = pack('>BBI2I7I7', 110, width, slots, newest, kept) .. body
      else
        here = 0
      end
      local left, left_here = count - sum, per_slot - here
      if left_here < left then left = left_here end
      answer = pack('>BI7I7I7', allowed and 0 or 1, wait, left > 0 and left or 0, full_in)
