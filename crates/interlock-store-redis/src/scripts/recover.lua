-- What is mended: done twice it does no harm, so these requests have no id.
local about = P .. ':about'
local verbs = {}

-- Ends a term, so that its owner reads again.
local function over(lease, now)
    local term = tonumber(call('HGET', lease, 'term'))
    if term then
        call('HSET', lease, 'term', text(math.max(term + 1, now)))
        gave(math.max(term + 1, now))
        call('HDEL', lease, 'holder')
    end
    return term
end

-- An archive has to read all rows again: some of what it has never was.
local function read_again(last)
    if call('HEXISTS', about, 'followed') == 1 then
        call('HSET', about, 'followed', last)
    end
end

-- This place has forgotten what it acknowledged: every term is over. `APART` is how many shards have places of their own, if it is
-- the home of such. What the store is made of comes last, if it is a home.
function verbs.forgotten()
    local client, acknowledged, event, skipped, remembered, apart =
        take(), take(), count(), count(), count(), count()
    local leases = {}
    for n = 1, count() do
        leases[n] = { take(), take() }
    end
    local made = {}
    for n = 1, count() do
        made[n] = { take(), take() }
    end
    -- Somebody has made another store where this one was: that one is not ours to mend.
    for _, field in ipairs(made) do
        local found = call('HGET', about, field[1])
        if field[1] == 'shards' and found and found ~= field[2] then
            return redis.error_reply('ERR the store was emptied, and made anew with ' .. found .. ' shards instead of '
                .. field[2] .. ': start Interlock again')
        end
    end
    local given = tonumber(call('HGET', about, 'event')) or 0
    -- Several that were started again may remember the same.
    if remembered > 0 and given >= remembered then
        return 0
    end
    local now = millis()
    for _, lease in ipairs(leases) do
        if over(lease[1], now) then
            call('DEL', lease[2])
        end
    end
    -- Numbers that were given and forgotten are not given again, nor are those of others.
    local last = text(math.max(given, event) + skipped)
    call('HSET', about, 'event', last)
    -- Nor may a shard write one that it got before: who reads has the shards close them.
    for shard = 0, apart - 1 do
        call('HSET', P .. ':numbers', 'given:' .. text(shard), last, 'at:' .. text(shard), '0')
    end
    -- One that was emptied is the same store all the same.
    for _, field in ipairs(made) do
        call('HSETNX', about, field[1], field[2])
    end
    read_again(last)
    call('SET', P .. ':witness:' .. client, acknowledged, 'PX', 2592000000)
    return 1
end

-- At home, of a shard that has forgotten: its terms are over here too. Tells the last number that was given.
function verbs.lost()
    local now, last = millis(), call('HGET', about, 'event') or '0'
    for _ = 1, count() do
        over(take(), now)
    end
    read_again(last)
    return last
end

-- In the place of a shard: nothing up to this number is written any more. Tells up to which number that is so.
function verbs.close()
    local found, asked = tonumber(call('HGET', about, 'event')) or 0, count()
    if found < asked then
        call('HSET', about, 'event', text(asked))
    end
    return text(math.max(found, asked))
end

return verbs[take()]()
