
    -- Sliding log.
    elseif kind == 9 then
      local count, cost, period, taken = unpack('>I3I6I7I7', a, from)
      -- The charges, oldest first: a time of 7 bytes, and a cost of `width` bytes, or a cost of 1
      -- where that is 0. The total is cut at 2^53: one that is has to be summed up again.
      local latest, total, width, body = 0, 0, 0, ''
      local size, entries = 7, 0
      local function time(k) return (unpack('>I7', body, (k - 1) * size + 1)) end
      local function price(k)
        if width == 0 then return 1 end
        return (unpack('>I' .. width, body, (k - 1) * size + 8))
      end
      local function entry(at, c)
        return width == 0 and pack('>I7', at) or pack('>I7I' .. width, at, c)
      end
      -- Makes room for costs of so much.
      local function widen(c)
        if width == 0 and c == 1 or width > 0 and c < 256 ^ width then return end
        local wider = c < 256 and 1 or c < 65536 and 2 or c < 4294967296 and 4 or 6
        local parts = {}
        for k = 1, entries do parts[k] = pack('>I7I' .. wider, time(k), price(k)) end
        body, width, size = table.concat(parts), wider, 7 + wider
      end
      -- Puts an entry in the place of those from one to another; a cost of 0 only removes them.
      local function replace(from, to, at, c)
        if c > 1099511627776 then c = 1099511627776 end
        for k = from, to do total = total - price(k) end
        if c > 0 then widen(c) end
        body = sub(body, 1, (from - 1) * size) .. (c > 0 and entry(at, c) or '') .. sub(body, to * size + 1)
        total, entries = total + c, #body / size
      end
      -- The first entry after a time, or one past the last.
      local function first_after(at)
        local low, high = 1, entries + 1
        while low < high do
          local middle = floor((low + high) / 2)
          if time(middle) > at then high = middle else low = middle + 1 end
        end
        return low
      end
      local function sum_up()
        total = 0
        for k = 1, entries do total = total + price(k) end
      end

      local at = now
      if s then
        local w = byte(s, 2)
        if byte(s) == 108 and #s > 16 and (w == 0 or w == 1 or w == 2 or w == 4 or w == 6)
          and (#s - 16) % (7 + w) == 0 then
          latest, total = unpack('>I7I7', s, 3)
          width, body, size = w, sub(s, 17), 7 + w
          entries = #body / size
          local cut = total >= 9007199254740992
          if latest - now > SKEW then
            -- The clock was set back: what lies ahead counts from now on.
            local from = first_after(now)
            if from <= entries then
              if from > 1 and time(from - 1) == now then from = from - 1 end
              local sum = 0
              for k = from, entries do sum = sum + price(k) end
              replace(from, entries, now, sum)
            end
            -- Only entries that cost nothing, which nobody writes, can all be gone.
            latest = entries > 0 and time(entries) or now
          elseif latest > now then
            at = latest
          end
          if entries == 0 or time(entries) <= at - period then
            body, entries, total, cut = '', 0, 0, false
          elseif time(1) <= at - period then
            if latest < at then latest = at end
            local from = first_after(at - period)
            if width == 0 then
              total = total - from + 1
            else
              for k = 1, from - 1 do total = total - price(k) end
            end
            body = sub(body, (from - 1) * size + 1)
            entries = #body / size
          end
          if cut then sum_up() end
        else
          foreign = true
        end
      end
      local cut = total >= 9007199254740992

      local wait, charged = 0, false
      if op == TAKE or op == PEEK then
        local most = count - cost
        if total <= most then
          charged = op == TAKE and cost > 0
        else
          allowed = false
          local k, over = 1, total - most
          if cut then
            -- The total is not exact, but that of the newest entries is.
            k, over = entries, price(entries)
            while over <= most and k > 1 do k = k - 1; over = over + price(k) end
          elseif width == 0 then
            k = over < entries and over or entries
          else
            over = over - price(1)
            while over > 0 and k < entries do k = k + 1; over = over - price(k) end
          end
          wait = time(k) + period - now
          if wait < 0 then wait = 0 end
        end
      elseif op == REFUND and entries > 0 and at - taken < period then
        -- From the first entry that it can mean.
        if taken > at then taken = at end
        local k = first_after(taken - 1)
        if k <= entries and time(k) - taken <= SKEW then
          local c = price(k)
          if c < 1099511627776 then replace(k, k, time(k), c > cost and c - cost or 0) end
        end
      end
      if charged or op == DEBIT and cost > 0 then
        if entries > 0 and time(entries) >= at then
          replace(entries, entries, time(entries), price(entries) + cost)
        else
          replace(entries + 1, entries, at, cost)
        end
        if latest < at then latest = at end
        if op == DEBIT and entries > count then
          -- Debits come without end: the oldest are merged into the next one.
          local sum, to = 0, entries - count + 1
          for k = 1, to do sum = sum + price(k) end
          replace(1, to, time(to), sum)
        end
      end

      if entries > 0 then
        full_in = time(entries) + period - now
        if full_in < 0 then full_in = 0 end
        local kept = (cut or total > 9007199254740992) and 9007199254740992 or total
        value = pack('>BBI7I7', 108, width, latest, kept) .. body
      end
      answer = pack('>BI7I7I7', allowed and 0 or 1, wait, count > total and count - total or 0, full_in)
