-- Reads. Each sees whole groups only, because nothing else runs meanwhile.
local verbs = {}

-- How many entries one call looks at, so that others are not kept waiting.
local LOOKS = 5000

local function wanted(value, word, more)
    if word == '' and more == '' then
        return true
    end
    local w, m = string.match(value, '^%d+ %S+ (%S+) (%S+) ')
    return (word == '' or w == word) and (more == '' or m == more)
end

function verbs.rows()
    local rows = {}
    for n = 1, count() do
        rows[n] = call('HGET', take(), take())
    end
    return rows
end

-- By score, from the first that is wanted on, forwards or backwards:
-- `KIND ZSET DIRECTION FIRST LAST AFTER_SCORE AFTER_MEMBER LIMIT WORD MORE`. The last score is not in it.
local function scores()
    local kind, zset, forwards, first, last = take(), take(), take() == 'up', take(), tonumber(take())
    local after_score, after_member, limit = tonumber(take()), take(), count()
    local word, more = take(), take()
    local rank, looks, rows = 0, 0, {}
    if forwards then
        rank = call('ZCOUNT', zset, '-inf', '(' .. first)
    else
        rank = call('ZCOUNT', zset, '(' .. first, '+inf')
    end
    while true do
        local command = forwards and 'ZRANGE' or 'ZREVRANGE'
        local found = call(command, zset, rank, rank + 99, 'WITHSCORES')
        for n = 1, #found, 2 do
            local member, score = found[n], tonumber(found[n + 1])
            if forwards and last and score >= last then
                return { 'end', rows }
            end
            local seen = after_score == score
                and ((forwards and member <= after_member) or (not forwards and member >= after_member))
            if not seen then
                local hash, field = address(kind, member)
                local value = call('HGET', hash, field)
                if value and wanted(value, word, more) then
                    rows[#rows + 1] = { member, value }
                    if #rows >= limit then
                        return { 'end', rows }
                    end
                end
            end
            looks = looks + 1
            if looks >= LOOKS then
                return { 'more', rows, found[n + 1], member }
            end
        end
        if #found < 200 then
            return { 'end', rows }
        end
        rank = rank + 100
    end
end

verbs.scores = scores

-- Slots, and every span that ends at or after an instant: `ZSET FROM` before what `scores` takes.
function verbs.ledger()
    local zset, from, spans = take(), take(), {}
    for n, member in ipairs(call('ZRANGEBYSCORE', zset, from, '+inf')) do
        local hash, field = address('span', member)
        spans[n] = { member, call('HGET', hash, field) }
    end
    local answer = scores()
    answer[3], answer[4], answer[5] = answer[3] or '', answer[4] or '', spans
    return answer
end

-- By member, after one: `KIND ZSET FIRST LAST LIMIT WORD`.
function verbs.members()
    local kind, zset, first, last, limit, word = take(), take(), take(), take(), count(), take()
    local looks, rows = 0, {}
    while true do
        local found = call('ZRANGEBYLEX', zset, first, last, 'LIMIT', 0, 100)
        for _, member in ipairs(found) do
            local hash, field = address(kind, member)
            local value = call('HGET', hash, field)
            if value and wanted(value, word, '') then
                rows[#rows + 1] = { member, value }
                if #rows >= limit then
                    return { 'end', rows }
                end
            end
            first = '(' .. member
            looks = looks + 1
        end
        if #found < 100 then
            return { 'end', rows }
        elseif looks >= LOOKS then
            return { 'more', rows, '0', found[#found] }
        end
    end
end

function verbs.agenda()
    local zset, after, limit, rows = take(), take(), count(), {}
    for n, name in ipairs(call('ZRANGEBYLEX', zset, after, '+', 'LIMIT', 0, limit)) do
        local row = call('HGET', P .. ':pipeline:' .. name, 'row')
        rows[n] = { name, row, call('HGETALL', P .. ':watermark:' .. name) }
    end
    return rows
end

function verbs.revisions()
    local zset, after, limit, rows = take(), take(), count(), {}
    for n, name in ipairs(call('ZRANGEBYLEX', zset, after, '+', 'LIMIT', 0, limit)) do
        rows[n] = { name, text(revision(call('HGET', P .. ':pipeline:' .. name, 'row'))) }
    end
    return rows
end

function verbs.inbox()
    local zset, limit, rows = take(), count(), {}
    for n, member in ipairs(call('ZRANGE', zset, 0, limit - 1)) do
        local hash, field = address('letters', member)
        rows[n] = { member, call('HGET', hash, field) }
    end
    return rows
end

-- `AFTER LAST LIMIT`: events, and where to go on if that was not all that could be looked at.
function verbs.feed()
    local after, last, limit, rows, looks = take(), take(), count(), {}, 0
    while true do
        local found = call('XRANGE', P .. ':feed', '(' .. after, last, 'COUNT', 100)
        for _, entry in ipairs(found) do
            after = entry[1]
            local pipeline = entry[2][2]
            local event = call('XRANGE', P .. ':events:' .. pipeline, after, after)[1]
            -- One that was trimmed from its pipeline's stream is gone.
            if event then
                rows[#rows + 1] = { after, pipeline, event[2][4] }
                if #rows >= limit then
                    return { '', rows }
                end
            end
        end
        looks = looks + #found
        if #found < 100 then
            return { '', rows }
        elseif looks >= LOOKS then
            return { after, rows }
        end
    end
end

-- `AFTER LAST LIMIT`: since when changes are known, the last number given, and the changes.
function verbs.changes()
    local after, last, limit, rows = take(), take(), take(), {}
    local found = call('HMGET', P .. ':about', 'followed', 'event', 'archivedevents', 'archivedchanges')
    for n, entry in ipairs(call('XRANGE', P .. ':changed', '(' .. after .. '-0', last, 'COUNT', limit)) do
        rows[n] = { entry[1], entry[2][2], entry[2][4] }
    end
    return { found[1] or '', found[2] or '0', found[3] or '', found[4] or '', rows }
end

-- The last number given, and for each of so many shards the last that it was given, how many milliseconds ago, and the last that it
-- said it has written.
function verbs.numbers()
    local now, given = millis(), { call('HGET', P .. ':about', 'event') or '0' }
    for shard = 0, count() - 1 do
        local n = text(shard)
        local found = call('HMGET', P .. ':numbers', 'given:' .. n, 'at:' .. n, 'done:' .. n)
        given[#given + 1] = { found[1] or '0', text(now - (tonumber(found[2]) or 0)), found[3] or '0' }
    end
    return given
end

-- `LIMIT`: since when notifications wait that may be tried now, those that waited longest first.
function verbs.waiting()
    local limit, now, found = count(), millis() * 1000, {}
    for_claimable(now, function(_, _, _, since)
        found[#found + 1] = since
        return #found < limit
    end)
    return found
end

-- Who is there, and who holds what: `INSTANCES` and then each lease.
function verbs.roll()
    local now, instances, held = millis(), take(), {}
    local present = call('ZRANGEBYSCORE', instances, '(' .. text(now), '+inf')
    for n = 1, count() do
        local lease = call('HMGET', take(), 'holder', 'expires')
        local lives = lease[1] and tonumber(lease[2]) > now
        held[n] = lives and { lease[1], lease[2] } or {}
    end
    return { text(now), present, held }
end

-- By a script, because it names the home: a server of a cluster that does not have it would find nothing.
function verbs.scan()
    return call('SCAN', take(), 'MATCH', take(), 'COUNT', take(), 'TYPE', 'hash')
end

function verbs.now()
    return text(millis())
end

return verbs[take()]()
