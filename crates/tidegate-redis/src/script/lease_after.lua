
      if step > 0 then
        -- What the branch has answered: what is left, behind the wait.
        local at = kind <= 3 and 11 or 9
        local left = unpack('>I7', answer, at)
        local told, wait, refusal = nil, 0, 0
        if step == 1 then
          s = value
        elseif step == 5 then
          s, step, op, a = value, after[4], PEEK, priced(lacking)
        elseif step == 3 and (asked == TAKE or asked == PEEK) and allowed and left < occupied then
          -- It would fit if nothing were leased.
          step, after, op = 4, left, PEEK
        elseif step == 3 and asked == PEEK and allowed then
          step, op = 8, PEEK
        elseif step == 3 or step == 8 then
          s, changed, told = value, true, sub(answer, 1, at - 1)
        elseif step == 4 then
          local never
          lacking = left - after
          a, never = priced(lacking + occupied)
          if never then step, told, refusal, wait = 9, true, 2, 20000 else step = 9 end
        elseif step == 9 then
          -- Until that much fits, a lease expires, or for a moment.
          told, refusal, wait = true, 2, 20000
          if not allowed then
            local fits
            if kind <= 3 then
              local h, l = unpack('>I6I3', answer, 2)
              fits = h * 1048576 + l
              if kind == 3 then
                local period = unpack('>I7', given, from + 47)
                fits = fits * period - now % period
              end
            else
              fits = unpack('>I7', answer, 2)
            end
            if fits < wait then wait = fits end
          end
        elseif step == 6 then
          local free = left > occupied and left - occupied or 0
          local lease = leases[mine]
          local rest = lease[3] - lease[4]
          local need, waiting, want = after[1], after[2], after[3]
          if allowed and free >= lacking then
            local share = floor(free / (2 * #leases))
            local target = want
            if want > rest + share then
              target = waiting < rest + share and waiting or rest + share
              if need > target then target = need end
            end
            if target > rest then
              lease[3], occupied, rest = lease[3] + target - rest, occupied + target - rest, target
            end
            granted, step = lease[3], 7
          elseif lacking == 0 then
            -- It is in debt, and nothing is needed of it.
            step = 7
          elseif allowed then
            step = 4
          else
            told = sub(answer, 1, at - 1)
          end
          -- A lease of nothing is none.
          if rest == 0 then table.remove(leases, mine) end
          if step == 4 then
            local never
            a, never = priced(lacking + occupied)
            if never then told, refusal, wait = true, 2, 20000 end
            step = 9
          end
        end
        if step == 7 then told = true end

        if told then
          allowed = refusal == 0 and (asked > RENEW or allowed)
          if #leases > 0 then
            -- As bytes, what they occupy, when the first and the last expire, and for how long the state stays.
            local parts, soonest, latest = {}, leases[1][5], 0
            for k = 1, #leases do
              local lease = leases[k]
              parts[k] = lease[1] .. pack('>I4I6I6I7', lease[2], lease[3], lease[4], lease[5])
              if lease[5] < soonest then soonest = lease[5] end
              if lease[5] > latest then latest = lease[5] end
            end
            kept = { pack('>BBI6', 76, #leases, hold) .. table.concat(parts), occupied, soonest, latest, hold }
            held = held or {}
            held[i] = kept
          end
          if told == true then
            if refusal == 2 then
              if kept and kept[3] - now < wait then wait = kept[3] - now end
              if wait < 1 then wait = 1 end
            end
            if kind <= 3 then
              told = pack('>BI6I3', refusal, floor(wait / 1048576), wait % 1048576)
            else
              told = pack('>BI7', refusal, wait)
            end
          end
          left = left > occupied and left - occupied or 0
          answer = told .. pack('>I7', left) .. sub(answer, at + 7)
          if asked > RENEW then answer = answer .. pack('>BI6', mine and 1 or 0, granted) end
          value = s
          if kept then
            value, full_in = kept[1] .. (s or ''), full_in + (kept[4] - now) + kept[5] * 1000
          end
          if not changed and not foreign then value = outer end
          s, op, step = outer, asked, 0
        end
      end
    until step == 0
    end
