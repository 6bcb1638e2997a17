
    -- Each branch sets these: whether the operation goes through, the answer, the state that
    -- follows, and in how many microseconds that is full.
    local allowed, answer, value, full_in = true, nil, false, 0

    -- What is asked often has a short way: a take from a token bucket (11) all of whose units are
    -- below 2^53, that is neither in debt nor leased from. It is the arithmetic of `bucket.lua` without
    -- the halves. Any other state goes there, with the numbers cut as all buckets have them.
    if kind == 11 then
      local tokens, ticks, depth, cost = unpack('>I4I7I7I7', a, from)
      local cut = depth + tokens * SKEW
      if not s or #s == 11 and byte(s) == 98 then
        local used = 0
        if s then
          local time_h, time_l, part = unpack('>I3I4I3', s, 2)
          local ahead = time_h * 4294967296 + time_l - now
          if ahead >= 0 then
            -- Not exact from 2^53 on, and then still more than the cut.
            used = ahead * tokens + (part < tokens and part or tokens)
            if used > cut then used = depth end
          end
        end
        local wait, left = 0, depth - used - cost
        if left < 0 then
          allowed, wait, left = false, -floor(left / tokens), depth - used
          if left < 0 then left = 0 end
        elseif op == TAKE then
          used = used + cost
        else
          left = left + cost
        end
        local full = floor(used / tokens)
        local part = used - full * tokens
        full_in = part > 0 and full + 1 or full
        if used > 0 then
          local at = now + full
          local at_h = floor(at / 4294967296)
          value = pack('>BI3I4I3', 98, at_h, at - at_h * 4294967296, part)
        end
        local wait_h, full_h = floor(wait / 1048576), floor(full_in / 1048576)
        answer = pack('>BI6I3I7I6I3', allowed and 0 or 1, wait_h, wait - wait_h * 1048576, floor(left / ticks), full_h, full_in - full_h * 1048576)
      else
        local base = tokens * 1048576
        local depth_h, cut_h, cost_h = floor(depth / base), floor(cut / base), floor(cost / base)
        a = pack('>I4I7I6I6I6I6I6I6I7I7I6I3', tokens, ticks, depth_h, depth - depth_h * base, cut_h, cut - cut_h * base, cost_h, cost - cost_h * base, 1, 0, 0, 0)
        kind, from = 1, 1
      end
    end

