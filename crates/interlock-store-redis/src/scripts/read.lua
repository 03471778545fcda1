-- Reads. Each sees whole groups only, because nothing else runs meanwhile.
local verbs = {}

-- How many entries one call looks at, so that others are not kept waiting.
local LOOKS = 5000

local function wanted(value, word, more)
    if word == '' and more == '' then
        return true
    end
    local w, m = string.match(value, '^%d+ %S+ (%S+) (%S+) ')
    local is_word = word == '' or w == word or (string.sub(word, 1, 1) == '!' and w ~= string.sub(word, 2))
    return is_word and (more == '' or m == more)
end

function verbs.rows()
    local rows = {}
    for n = 1, count() do
        rows[n] = call('HGET', take(), take())
    end
    return rows
end

-- As the server orders members: by their bytes, whatever language the server speaks.
local function is_before(one, other)
    for n = 1, math.min(#one, #other) do
        local a, b = string.byte(one, n), string.byte(other, n)
        if a ~= b then
            return a < b
        end
    end
    return #one < #other
end

-- How many stand before what comes after a place, which is a score and a member. Ten thousand may have one score, and the member may be
-- gone or have another by now: its neighbours are found by halving.
local function rank_after(zset, score, member, forwards)
    if tonumber(call('ZSCORE', zset, member) or nil) == tonumber(score) then
        return call(forwards and 'ZRANK' or 'ZREVRANK', zset, member) + 1
    end
    local low = forwards and call('ZCOUNT', zset, '-inf', '(' .. score) or call('ZCOUNT', zset, '(' .. score, '+inf')
    local high = low + call('ZCOUNT', zset, score, score)
    local range = forwards and 'ZRANGE' or 'ZREVRANGE'
    while low < high do
        local middle = math.floor((low + high) / 2)
        local found = call(range, zset, middle, middle)[1]
        local is_seen
        if forwards then
            is_seen = is_before(found, member)
        else
            is_seen = is_before(member, found)
        end
        if is_seen then
            low = middle + 1
        else
            high = middle
        end
    end
    return low
end

-- By score, from the first that is wanted on, forwards or backwards:
-- `KIND ZSET DIRECTION FIRST LAST AFTER_SCORE AFTER_MEMBER LIMIT WORD MORE`. Forwards the last score is not in it, backwards it is.
local function scores()
    local kind, zset, forwards, first, last = take(), take(), take() == 'up', take(), tonumber(take())
    local after_score, after_member, limit = take(), take(), count()
    local word, more = take(), take()
    local rank, looks, rows = 0, 0, {}
    if after_member ~= '' and tonumber(after_score) == tonumber(first) then
        rank = rank_after(zset, after_score, after_member, forwards)
    elseif forwards then
        rank = call('ZCOUNT', zset, '-inf', '(' .. first)
    else
        rank = call('ZCOUNT', zset, '(' .. first, '+inf')
    end
    while true do
        local command = forwards and 'ZRANGE' or 'ZREVRANGE'
        local found = call(command, zset, rank, rank + 99, 'WITHSCORES')
        for n = 1, #found, 2 do
            local member, score = found[n], tonumber(found[n + 1])
            if last and (forwards and score >= last or not forwards and score < last) then
                return { 'end', rows }
            end
            local hash, field = address(kind, member)
            local value = call('HGET', hash, field)
            if value and wanted(value, word, more) then
                rows[#rows + 1] = { member, value }
                if #rows >= limit then
                    return { 'end', rows }, true
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

function verbs.scores()
    local answer = scores()
    return answer
end

-- The spans that end at or after an instant and stand after a place, in their order, as many as a page holds; up to the last slot of a page
-- that is full. Where they stand is in their names: rows are read only of those that are told. Backwards, `after` may be a mere instant.
local function spans_after(zset, from, forwards, after, is_after_slot, most, word, last_slot)
    local found, rows = {}, {}
    local function instant(member)
        return string.match(member, '%S+$') or ''
    end
    local function is_earlier(one, other)
        local a, b = instant(one), instant(other)
        if a ~= b then
            return is_before(a, b)
        end
        return is_before(one, other)
    end
    local function comes_first(one, other)
        if forwards then
            return is_earlier(one, other)
        end
        return is_earlier(other, one)
    end
    for _, member in ipairs(call('ZRANGEBYSCORE', zset, from, '+inf')) do
        local is_later = after == '' or comes_first(after, member) or (forwards and is_after_slot and member == after)
        if is_later and last_slot then
            local a, b = instant(last_slot), instant(member)
            is_later = a == b or is_before(b, a) == forwards
        end
        if is_later then
            found[#found + 1] = member
        end
    end
    table.sort(found, comes_first)
    for _, member in ipairs(found) do
        local hash, field = address('span', member)
        local value = call('HGET', hash, field)
        if value and wanted(value, word, '') then
            rows[#rows + 1] = { member, value }
            if #rows >= most then
                break
            end
        end
    end
    return rows
end

-- Slots and spans: `ZSET FROM DIRECTION AFTER IS_AFTER_SLOT LIMIT WORD` of the spans before what `scores` takes.
function verbs.ledger()
    local zset, from, forwards, after = take(), take(), take() == 'up', take()
    local is_after_slot, most, word = take() == 'slot', count(), take()
    local answer, is_full = scores()
    local spans = {}
    if answer[1] == 'end' then
        local slots = answer[2]
        local last_slot = is_full and slots[#slots][1]
        spans = spans_after(zset, from, forwards, after, is_after_slot, most, word, last_slot)
    end
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

-- `DIRECTION AFTER LAST LIMIT`: events, and where to go on if that was not all that could be looked at.
function verbs.feed()
    local forwards, after, last, limit, rows, looks = take() == 'up', '(' .. take(), take(), count(), {}, 0
    while true do
        local found
        if forwards then
            found = call('XRANGE', P .. ':feed', after, last, 'COUNT', 100)
        else
            found = call('XREVRANGE', P .. ':feed', last, after, 'COUNT', 100)
        end
        local id
        for _, entry in ipairs(found) do
            id = entry[1]
            local pipeline = entry[2][2]
            local event = call('XRANGE', P .. ':events:' .. pipeline, id, id)[1]
            -- One that was trimmed from its pipeline's stream is gone.
            if event then
                rows[#rows + 1] = { id, pipeline, event[2][4] }
                if #rows >= limit then
                    return { '', rows }
                end
            end
        end
        looks = looks + #found
        if #found < 100 then
            return { '', rows }
        elseif looks >= LOOKS then
            return { id, rows }
        elseif forwards then
            after = '(' .. id
        else
            last = '(' .. id
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
