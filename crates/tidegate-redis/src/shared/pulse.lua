-- One node says that it is there, tells what quota came back by it, and learns what came back by others.
--
-- KEYS     the nodes by when they are forgotten; what came back lately, a stream
-- ARGV     node, for how many ms it is remembered, what came back by it (16 bytes for each key, '*' for too
--          many, '' for nothing), the last entry of the stream that it knows ('' for none)
-- reply    number of nodes, whether this one was known, whether entries were missed, last entry, and
--          for each entry of another node since: what came back

local node, lasts, back, last = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local ENTRIES_MAX, ENTRIES_LAST = 256, 10000

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local new = redis.call('ZADD', KEYS[1], now + lasts, node)
redis.call('PEXPIRE', KEYS[1], lasts)

if back ~= '' then
  redis.call('XADD', KEYS[2], 'MAXLEN', ENTRIES_MAX, '*', node, back)
  redis.call('PEXPIRE', KEYS[2], ENTRIES_LAST)
end

local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
newest = newest and newest[1] or '0-0'
if last == '' then last = newest end
-- The stream was cut, perhaps behind what this node knows.
local missed = redis.call('XLEN', KEYS[2]) >= ENTRIES_MAX and #redis.call('XRANGE', KEYS[2], last, last) == 0
local reply = { redis.call('ZCARD', KEYS[1]), 1 - new, missed and 1 or 0, newest }
for _, entry in ipairs(redis.call('XRANGE', KEYS[2], '(' .. last, '+')) do
  if entry[2][1] ~= node then reply[#reply + 1] = entry[2][2] end
end
return reply
