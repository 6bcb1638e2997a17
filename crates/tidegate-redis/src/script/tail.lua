
    if foreign then
      if flags >= 2 then return pack('>BI7B', 2, now, i - 1) end
      -- Not `false`, so that whatever is there is written over.
      s, reset = true, reset + 2 ^ (i - 1)
    end
    if kind > 0 then
      if pass == 1 then old[i], fits[i] = s, allowed end
      if op == TAKE and not allowed then refused = true end
      answers[i], new[i], lasts[i] = answer, value, floor(full_in / 1000) + 1 + margin
    end
  end
  pass = pass + 1
until pass > 2 or not refused or charges == 1

for i = 1, charges do
  -- A state that stays as it is keeps its expiry as well.
  if new[i] ~= old[i] then
    if new[i] then
      redis.call('SET', KEYS[i], new[i], 'PX', lasts[i])
    else
      redis.call('DEL', KEYS[i])
    end
  end
end
return pack('>BI7I2', 0, now, reset) .. table.concat(answers)
