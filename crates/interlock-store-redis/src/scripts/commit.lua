-- Groups: all checks of one, then all its changes.
local about = P .. ':about'
-- Whether somebody archives, and the last event that the archive has: nothing after it is trimmed.
local followed, archived = unpack(call('HMGET', about, 'followed', 'archivedevents'))

local function pass(n)
    at = at + n
end

local function skip(op)
    if op ~= 'put' then
        pass(3 * count())
        return
    end
    pass(2)
    pass(3 * count())
    for _ = 1, count() do
        if take() == 'hash' then
            pass(2)
            pass(count())
        else
            pass(4)
        end
    end
end

local function holds(expect, found)
    return expect == '*' or (expect == '-' and found == 0) or (found > 0 and expect == text(found))
end

-- The number before which events may go, given one before which they should.
local function unread(number)
    return archived and text(math.min(tonumber(number), tonumber(archived) + 1)) or number
end

-- What is older than the retention, by marks of which event was when.
local function forget(number, retention)
    local marks, now = P .. ':index:eventtimes', millis()
    call('ZADD', marks, now, number)
    local old = call('ZREVRANGEBYSCORE', marks, text(now - retention), '-inf', 'LIMIT', 0, 1)[1]
    if old then
        call('HSET', about, 'eventfloor', old)
        call('ZREMRANGEBYSCORE', marks, '-inf', '(' .. call('ZSCORE', marks, old))
        call('XTRIM', P .. ':feed', 'MINID', '~', unread(old))
    end
end

-- The longest that a stream may be, without what is not archived yet.
local function shorten(stream, longest)
    local excess = call('XLEN', stream) - longest
    if excess > 0 then
        local first = call('XRANGE', stream, '-', '+', 'COUNT', math.min(excess, 1000) + 1)
        local number = string.match(first[#first][1], '^%d+')
        call('XTRIM', stream, 'MINID', '~', unread(number))
    end
end

local function append()
    local pipeline, kind, data, longest, retention = take(), take(), take(), take(), count()
    local stream = P .. ':events:' .. pipeline
    local last = call('HINCRBY', about, 'event', 1)
    local number = text(last)
    if archived then
        call('XADD', stream, number .. '-0', 'kind', kind, 'data', data)
    else
        call('XADD', stream, 'MAXLEN', '~', longest, number .. '-0', 'kind', kind, 'data', data)
    end
    call('XADD', P .. ':feed', number .. '-0', 'pipeline', pipeline)
    if last % 1024 == 0 then
        forget(number, retention)
    end
    if last % 64 == 0 then
        local floor = call('HGET', about, 'eventfloor')
        if floor then
            call('XTRIM', stream, 'MINID', '~', unread(floor))
        end
        if archived then
            shorten(stream, tonumber(longest))
        end
    end
    return number
end

-- Notes for an archive that a row was written or deleted.
local function note(pipeline, key)
    if followed and key ~= '' then
        local number = text(call('HINCRBY', about, 'event', 1))
        call('XADD', P .. ':changed', number .. '-0', 'p', pipeline, 'k', key)
    end
end

local function change(op, last, pipeline)
    if op == 'event' then
        return append()
    end
    local hash, field = find()
    if op == 'answered' then
        local zset, member = find()
        call('HDEL', hash, field)
        call('ZREM', zset, member)
        return last
    end
    take()
    note(pipeline, take())
    if op == 'put' then
        put(hash, field, revision(call('HGET', hash, field)))
    else
        if op == 'drop' then
            call('DEL', hash)
        else
            call('HDEL', hash, field)
        end
        index(count())
    end
    return last
end

-- The first row that is not as expected: which change, and its revision.
local function conflict(changes)
    local wrong
    for n = 1, changes do
        local op = take()
        if op == 'event' then
            pass(5)
        elseif op == 'answered' then
            pass(4)
        else
            local hash, field = find()
            local expect = take()
            pass(1)
            if not wrong then
                local found = revision(call('HGET', hash, field))
                if not holds(expect, found) then
                    wrong = { 'conflict', text(n), text(found) }
                end
            end
            skip(op)
        end
    end
    return wrong
end

local function group(refused)
    local pipeline, lease, term, changes = take(), take(), take(), count()
    local first = at
    local wrong = conflict(changes)
    local behind = at
    if refused[pipeline] then
        return { 'behind' }
    end
    local held = call('HMGET', lease, 'term', 'holder')
    if held[1] ~= term or not held[2] then
        wrong = { 'term', held[1] or '0' }
    end
    if wrong then
        refused[pipeline] = true
        return wrong
    end
    at = first
    local last = '0'
    for _ = 1, changes do
        last = change(take(), last, pipeline)
    end
    at = behind
    return { 'done', last }
end

return once(function()
    local answers, refused = {}, {}
    for n = 1, count() do
        answers[n] = group(refused)
    end
    return answers
end)
