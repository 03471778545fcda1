-- Shared by all scripts. ARGV[1] is the prefix of all keys.
-- A row is one field of a hash: `REVISION CLAIMED WORD MORE BODY`, `-` for nothing.
local P = ARGV[1]
local words, at = ARGV, 1
local function take()
    at = at + 1
    return words[at]
end
local function count()
    return tonumber(take())
end
local function pass(n)
    at = at + n
end
local call = redis.call

-- While a hash slot of a cluster is moved, a key that is not here may be on the other server, and whoever touches it is refused: in
-- the middle of a script, with half of it done. One that is nowhere tells before anything is done.
if string.sub(P, 1, 1) == '{' and type(redis.pcall('EXISTS', P .. ':nothing')) == 'table' then
    return redis.error_reply('TRYAGAIN the hash slot is being moved to another server of the cluster')
end

-- Numbers are doubles: whole ones are exact up to 2^53, and must not be written with an exponent.
local function text(number)
    return string.format('%.0f', number)
end

local function micros()
    local time = call('TIME')
    return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local function millis()
    return math.floor(micros() / 1000)
end

local function revision(value)
    return value and tonumber(string.match(value, '^%d+')) or 0
end

-- A term was given. The last one, with the last event and how often something was written, tells which of two servers is further
-- that hold the same store (`named.rs`).
local function gave(term)
    if term > (tonumber(call('HGET', P .. ':about', 'term')) or 0) then
        call('HSET', P .. ':about', 'term', text(term))
    end
end

-- A request that was done already, and whose answer was lost on its way: the same answer again. A store that
-- has forgotten what it acknowledged to this client says so instead of doing anything. What is refused is not done: it may be asked
-- again under the same id.
local function once(work, refusal)
    local id, ttl, client, acknowledged = take(), take(), take(), count()
    -- The rest is packed: a request of many groups has tens of thousands of words, and each would be an object of the server.
    words, at = cmsgpack.unpack(take()), 0
    local key = P .. ':request:' .. id
    local done = call('GET', key)
    if done then
        return cmsgpack.unpack(done)
    end
    local witness = P .. ':witness:' .. client
    -- The home says what store it is as long as there is one: eviction may take that alone.
    local is_gone = acknowledged > 0 and not string.match(P, ':%d+}$') and call('HEXISTS', P .. ':about', 'identity') == 0
    if is_gone or (tonumber(call('GET', witness)) or 0) < acknowledged then
        return { 'rollback' }
    end
    local refused = refusal and refusal()
    if refused then
        return refused
    end
    local answer = work()
    table.insert(answer, 1, text(call('INCR', witness)))
    -- A cluster knows its primaries by itself.
    if string.sub(P, 1, 1) ~= '{' then
        call('HINCRBY', P .. ':about', 'writes', 1)
    end
    call('PEXPIRE', witness, 2592000000)
    call('SET', key, cmsgpack.pack(answer), 'PX', ttl)
    return answer
end

-- `HASH FIELD` of a row.
local function find()
    return take(), take()
end

-- Index entries: `ZSET MEMBER SCORE`, and no score for one that is to go.
local function index(n)
    for _ = 1, n do
        local zset, member, score = take(), take(), take()
        if score == '' then
            call('ZREM', zset, member)
        else
            call('ZADD', zset, score, member)
        end
    end
end

-- Views: what the first Interlock kept, for those who look with redis-cli. Nothing is decided by them.
local function view(n)
    for _ = 1, n do
        local kind, key = take(), take()
        if kind == 'hash' then
            local ttl, fields = count(), {}
            for field = 1, count() do
                fields[field] = take()
            end
            call('HSET', key, unpack(fields))
            if ttl > 0 then
                call('PEXPIRE', key, ttl)
            end
        else
            local score, member, keep = take(), take(), count()
            if call('ZADD', key, score, member) == 1 and call('ZCARD', key) > keep then
                call('ZREMRANGEBYRANK', key, 0, -keep - 1)
            end
        end
    end
end

-- The rest of a row that is written: `REST CLAIMED` and the index entries and views.
local function put(hash, field, found)
    local rest, claimed = take(), take()
    call('HSET', hash, field, text(found + 1) .. ' ' .. claimed .. ' ' .. rest)
    index(count())
    view(count())
end

-- Where the row of an index entry is.
local function address(kind, member)
    local pipeline, rest = string.match(member, '^(%S+) ?(.*)$')
    if kind == 'open' then
        local instant, schedule = string.match(rest, '^(%S+) (%S+)$')
        return P .. ':slot:' .. pipeline, schedule .. ' ' .. instant
    elseif kind == 'run' then
        local schedule, instant, generation, attempt = string.match(rest, '^(%S+) (%S+) (%d+) (%d+)$')
        local compact = string.gsub(string.gsub(instant, '[-:]', ''), '%.000Z$', 'Z')
        local id = table.concat(
            { pipeline, schedule, compact, text(tonumber(generation)), text(tonumber(attempt)) }, '~')
        return P .. ':run:' .. id, 'row'
    end
    return P .. ':' .. kind .. ':' .. pipeline, rest
end

-- Notifications that may be tried now, those that waited longest first, until `take_it` has enough: it gets the member, the row's place,
-- since when it waits, and the row.
local function for_claimable(now, take_it)
    local zset, rank = P .. ':index:outbox', 0
    while true do
        local found = call('ZRANGE', zset, rank, rank + 99, 'WITHSCORES')
        for n = 1, #found, 2 do
            if tonumber(found[n + 1]) > now then
                return
            end
            local hash, field = address('outbox', found[n])
            local value = call('HGET', hash, field)
            local claimed = string.match(value, '^%d+ (%S+) ')
            if (claimed == '-' or tonumber(claimed) <= now) and not take_it(found[n], hash, field, found[n + 1], value) then
                return
            end
        end
        if #found < 200 then
            return
        end
        rank = rank + 100
    end
end
