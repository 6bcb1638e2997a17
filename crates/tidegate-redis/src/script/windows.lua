
    -- Fixed window: of the clock (4), from the first request (5), of the calendar (6).
    elseif kind <= 6 then
      local count, most, cost, length, taken, at = unpack('>I6I6I6I7I7', a, from)
      -- The end of the window around now, where it begins, and the latest end of one that is taken
      -- for it: the next one's, or that of one that begins within the skew.
      local begin, finish, latest
      if kind == 6 then
        local b0, b1, b2, b3, b4 = unpack('>I7I7I7I7I7', a, at)
        if b1 <= now and now < b2 then begin, finish, latest = b1, b2, b3
        elseif b2 <= now and now < b3 then begin, finish, latest = b2, b3, b4
        elseif b0 <= now and now < b1 then begin, finish, latest = b0, b1, b2
        else return pack('>BI7', 1, now) end
      else
        finish = kind == 4 and now - now % length + length or now + length
        latest = finish + length
        if latest < now + SKEW + length then latest = now + SKEW + length end
      end
      local ends, used = finish, 0
      if s then
        if byte(s) == 102 and (#s == 12 or #s == 14) then
          local state_ends, state_used = unpack(#s == 12 and '>I7I4' or '>I7I6', s, 2)
          if state_ends > now then
            used = state_used
            if state_ends <= latest then ends = state_ends end
          end
        else
          foreign = true
        end
      end

      local wait = 0
      if op == TAKE or op == PEEK then
        if used > count - cost then
          allowed, wait = false, ends - now
        elseif op == TAKE then
          used = used + cost
        end
      elseif op == DEBIT then
        used = used + cost
        if used > most then used = most end
      elseif op == REFUND then
        local start
        if kind == 6 then
          if ends <= finish then start = begin else start = finish end
        else
          start = ends > length and ends - length or 0
        end
        -- A window ahead of now has begun all the same, so its start is the least that now can be.
        local since = now > start and now or start
        if taken > since then taken = since end
        if start <= taken and taken < ends then used = used > cost and used - cost or 0 end
      end
      if used > 0 then
        full_in = ends - now
        value = pack(used < 4294967296 and '>BI7I4' or '>BI7I6', 102, ends, used)
      end
      answer = pack('>BI7I7I7', allowed and 0 or 1, wait, count > used and count - used or 0, full_in)

    -- Sliding window.
    elseif kind == 7 then
      local count, cost, length, taken = unpack('>I6I6I7I7', a, from)
      local start = now - now % length
      local ends, previous, current = start + length, 0, 0
      if s then
        local size = #s
        if byte(s) == 119 and (size == 12 or size == 16 or size == 20) then
          local state_ends, p, c = unpack(size == 12 and '>I7I2I2' or size == 16 and '>I7I4I4' or '>I7I6I6', s, 2)
          if state_ends % length > 0 then state_ends = state_ends - state_ends % length + length end
          if state_ends == ends then
            previous, current = p, c
          elseif state_ends == start then
            previous = c
          elseif state_ends > start then
            local latest = ends + length
            if latest < now + SKEW + length then latest = now + SKEW + length end
            if state_ends <= latest then
              ends, previous, current = state_ends, p, c
            else
              -- The clock was set back. What the earlier window weighed is not known any more, so
              -- it counts in full, up to a limit that is used up.
              local full = count > c and count or c
              current = p + c < full and p + c or full
            end
          end
        else
          foreign = true
        end
      end

      if op == DEBIT then
        current = current + cost
        if current > 17592186044416 then current = 17592186044416 end
      elseif op == REFUND then
        local begin = ends - length
        local since = now > begin and now or begin
        if taken > since then taken = since end
        if taken >= begin then
          current = current > cost and current - cost or 0
        elseif taken >= begin - length then
          previous = previous > cost and previous - cost or 0
        end
      end

      -- floor(x * y / z) and what is left of it, for x below 2^45 and a product that may be larger.
      local function divided(x, y, z)
        local product = x * y
        if product < 9007199254740992 then
          local quotient = floor(product / z)
          return quotient, product - quotient * z
        end
        local whole = floor(y / z)
        local rest, quotient, over, digit = y - whole * z, 0, 0, 35184372088832
        repeat
          local d = floor(x / digit)
          x = x - d * digit
          local t = over * 8 + d * rest
          local q = floor(t / z)
          quotient, over, digit = quotient * 8 + d * whole + q, t - q * z, digit / 8
        until digit < 1
        return quotient, over
      end

      -- What the earlier window weighs now, rounded up. The rest of the sum is whole, so comparing
      -- with this is comparing with the exact weight.
      local rest = ends - now
      if rest > length then rest = length end
      local weight, over = divided(previous, rest, length)
      if over > 0 then weight = weight + 1 end

      local wait = 0
      if op == TAKE or op == PEEK then
        local most = count - cost
        if current + weight <= most then
          if op == TAKE then current = current + cost end
        else
          allowed = false
          local at
          if most >= current then
            at = ends - divided(most - current, length, previous)
          else
            at = ends + length - divided(most, length, current)
          end
          if at > now then wait = at - now end
        end
      end
      if previous > 0 or current > 0 then
        full_in = (current > 0 and ends + length or ends) - now
        local larger = previous > current and previous or current
        local format = larger < 65536 and '>BI7I2I2' or larger < 4294967296 and '>BI7I4I4' or '>BI7I6I6'
        value = pack(format, 119, ends, previous, current)
      end
      local left = count - current - weight
      answer = pack('>BI7I7I7', allowed and 0 or 1, wait, left > 0 and left or 0, full_in)
