-- Decides one resolved request, all or nothing, at one instant, or several equal ones, each as if it
-- had come after the other.
--
-- KEYS     one key per limit, all in one slot
-- ARGV     one string: the frame (flags, margin, now, repeats), then a charge per key: its length, kind,
--          operation, and the numbers of that kind
-- reply    a frame and one answer per charge, packed, for each round
--
-- `protocol.rs` lists every field of the arguments and of the reply, `state.md` every byte of the
-- states. All numbers on the wire are big-endian and unsigned.
--
-- Numbers are doubles, which are exact up to 2^53, and the answers have to be those of the core,
-- which multiplies in 128 bits. So no product that can be larger is ever formed:
--  * Times, counts and lengths are below 2^53 as they are: the clock is cut at 2^52 (the year 2112).
--  * Buckets count in units, of which there can be 2^87. A number of units is a pair (high, low) that
--    stands for high * base + low, with low < base = tokens * 2^20. Both halves stay below 2^46, and
--    what they need is adding, subtracting and comparing.
--  * Where a product must be divided, it is divided digit by digit while it is formed. Divisors are
--    below 2^49, so that a remainder times eight, plus a digit times another, stays below 2^53.
--  * `floor(x / y)` is exact for whole x and y below 2^53: a quotient just below a whole number is
--    further from it than doubles are apart.
--
-- There are hardly any functions in it: each would be made anew in every call. Those that are stand
-- in the branches of the algorithms that need them.

local unpack, pack, byte, sub, floor = struct.unpack, struct.pack, string.byte, string.sub, math.floor
local call, pcall, keys, charged = redis.call, redis.pcall, KEYS, ARGV[1]
local TAKE, PEEK, DEBIT, REFUND, RELEASE = 1, 2, 3, 4, 5
local SKEW = 1000000

local flags, margin, now, repeats = unpack('>BI4I7I2', charged)
if flags % 2 == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local charges = #keys
-- What was there, what is to be there (`false` for nothing), for how many milliseconds, the answers,
-- and which takes fit by themselves.
local old, new, lasts, answers, fits = {nil,nil,nil}, {nil,nil,nil}, {nil,nil,nil}, {nil,nil,nil}, {nil,nil,nil}
-- Equal requests that came together are decided one after the other, a round for each; what was
-- there before the first one, and the answers of the rounds that are over.
local first, told, round = old, nil, 1
-- The leases around the states, as the first round left them.
local held
local refused, reset, pass = false, 0, 1

repeat
  local from = 15
  for i = 1, charges do
    local size, kind, op = byte(charged, from, from + 2)
    local a, at_next, s = charged, from + size, nil
    from = from + 3
    if pass == 1 then
      if round == 1 then s = pcall('GET', keys[i]) else s = new[i] end
    else
      -- Another limit refuses, so a take that fits by itself only looks. All else stays as it is.
      s = old[i]
      if op == TAKE and fits[i] then op = PEEK else kind = 0 end
    end
    local foreign = false
    if type(s) ~= 'string' then
      if type(s) == 'table' then
        if not string.find(s.err, 'WRONGTYPE', 1, true) then return s end
        foreign = true
      end
      s = false
    end
