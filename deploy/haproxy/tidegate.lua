-- Asks Tidegate about each request, for HAProxy 2.6 and later.
--
--     http-request  lua.tidegate 127.0.0.1:8083 /v1/auth authorization,x-api-key
--     http-response lua.tidegate-headers
--
-- The first line asks, and answers the client itself where Tidegate refuses. It takes an address, a path, and
-- the headers of the client that Tidegate is to see (`-` for none). The second line puts what Tidegate says
-- about the limits on the answer of the application. If Tidegate cannot be asked, the request passes: a
-- limiter must not be the reason for an outage.
--
-- The address is that of a proxy section of this very HAProxy, not Tidegate's own. So connections are
-- kept alive, waiting is bounded, and a daemon that is down is not even asked: HAProxy does all that
-- better than a script. docs/proxies/haproxy.md has the section.

-- How often one header is handed on. Two are enough for Tidegate to see that there is more than one.
local VALUES_MAX = 2

-- Headers are handed on by name because their number has to be bounded: the client for HTTP of HAProxy 2.6
-- crashes with about a hundred, and who sends them is not ours to choose. With so many names it stays below.
local NAMES_MAX = 16

-- HAProxy counts the values of a field from 0; the client for HTTP takes lists from 1.
local function values(field, count_max)
    local list = {}
    while field[#list] and #list < count_max do
        list[#list + 1] = field[#list]
    end
    return list
end

-- What the proxy says itself about the request is no client's to say.
local function is_the_proxys(name)
    return name == "host" or name == "forwarded" or name:find("^x%-forwarded%-")
        or name:find("^x%-original%-")
end

local function names_in(text)
    local names = {}
    for name in text:lower():gmatch("[^,%s]+") do
        if name ~= "-" and not is_the_proxys(name) and #names < NAMES_MAX then
            names[#names + 1] = name
        end
    end
    return names
end

local function question(txn, names)
    local from_client = txn.http:req_get_headers()
    local headers = {}
    for _, name in ipairs(names_in(names)) do
        if from_client[name] then
            headers[name] = values(from_client[name], VALUES_MAX)
        end
    end
    headers["x-forwarded-method"] = { txn.sf:method() }
    headers["x-forwarded-uri"] = { txn.sf:pathq() }
    headers["x-forwarded-host"] = { txn.sf:req_hdr("host") }
    headers["x-forwarded-for"] = { txn.sf:src() }
    return headers
end

-- Only what tells clients where they stand goes on; other headers are between us and Tidegate.
local function about_limits(headers)
    local found = {}
    for name, field in pairs(headers) do
        if name:find("^ratelimit") or name:find("^x%-ratelimit%-") then
            found[name] = values(field, VALUES_MAX)
        end
    end
    return found
end

core.register_action("tidegate", { "http-req" }, function(txn, address, path, names)
    txn:set_priv({})
    local went_well, response = pcall(function()
        local url = "http://" .. address .. path
        return core.httpclient():get{ url = url, headers = question(txn, names) }
    end)
    if not went_well or not response then
        return
    end
    if response.status == 200 then
        txn:set_priv(about_limits(response.headers))
    elseif response.status >= 400 and response.status < 500 then
        -- 429 where the client is over its limit. Others are about its request too: if those passed, a client
        -- could get past its limit by sending what cannot be asked about.
        local headers = about_limits(response.headers)
        for _, name in ipairs({ "retry-after", "cache-control", "content-type" }) do
            headers[name] = response.headers[name] and values(response.headers[name], 1)
        end
        -- This ends the action by an error of its own, so it must not stand in a pcall.
        txn:done{
            status = response.status,
            reason = response.reason,
            headers = headers,
            body = response.body,
        }
    end
end, 3)

core.register_action("tidegate-headers", { "http-res" }, function(txn)
    for name, list in pairs(txn:get_priv() or {}) do
        txn.http:res_set_header(name, table.concat(list, ", "))
    end
end)
