-- Decides one resolved request, all or nothing, at one instant, or several equal ones, each as if it
-- had come after the other.
--
-- KEYS     one name for each family of limits, all in one slot
-- ARGV     one string: the frame (flags, margin, now, repeats, charges), then the charges: length, kind,
--          operation, which of KEYS, which member of that family, and the numbers of the kind
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

local unpack, pack, call, pcall, keys, charged = struct.unpack, struct.pack, redis.call, redis.pcall, KEYS, ARGV[1]
local flags, margin, now, repeats, charges = unpack('>BI4I7I2B', charged)
if flags % 2 == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
