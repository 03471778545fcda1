-- Groups: all checks of one, then all its changes.
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

-- What is older than the retention, by marks of which event was when.
local function forget(number, retention)
    local about, marks, now = P .. ':about', P .. ':index:eventtimes', millis()
    call('ZADD', marks, now, number)
    local old = call('ZREVRANGEBYSCORE', marks, text(now - retention), '-inf', 'LIMIT', 0, 1)[1]
    if old then
        call('HSET', about, 'eventfloor', old)
        call('ZREMRANGEBYSCORE', marks, '-inf', '(' .. call('ZSCORE', marks, old))
        call('XTRIM', P .. ':feed', 'MINID', '~', old)
    end
end

local function append()
    local pipeline, kind, data, longest, retention = take(), take(), take(), take(), count()
    local about, stream = P .. ':about', P .. ':events:' .. pipeline
    local last = call('HINCRBY', about, 'event', 1)
    local number = text(last)
    call('XADD', stream, 'MAXLEN', '~', longest, number .. '-0', 'kind', kind, 'data', data)
    call('XADD', P .. ':feed', number .. '-0', 'pipeline', pipeline)
    if last % 1024 == 0 then
        forget(number, retention)
    end
    if last % 64 == 0 then
        local floor = call('HGET', about, 'eventfloor')
        if floor then
            call('XTRIM', stream, 'MINID', '~', floor)
        end
    end
    return number
end

local function change(op, last)
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
        last = change(take(), last)
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
