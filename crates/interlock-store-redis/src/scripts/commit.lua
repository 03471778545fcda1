-- Groups: all checks of one, then all its changes.
local about = P .. ':about'
-- Whether somebody archives, and the last event that the archive has: nothing after it is trimmed.
local followed, archived = unpack(call('HMGET', about, 'followed', 'archivedevents'))

-- Numbers of events and notes, taken from the store for the whole request at once. `most` is how many it can need: what it does
-- not need is not given to anybody.
local most, given, last = 0, 0, 0
local function number()
    if given == last then
        last = call('HINCRBY', about, 'event', most)
        given = last - most
    end
    given = given + 1
    return given
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
    local event = number()
    local name = text(event)
    local id = name .. '-0'
    if archived then
        call('XADD', stream, id, 'kind', kind, 'data', data)
    else
        call('XADD', stream, 'MAXLEN', '~', longest, id, 'kind', kind, 'data', data)
    end
    call('XADD', P .. ':feed', id, 'pipeline', pipeline)
    if event % 1024 == 0 then
        forget(name, retention)
    end
    if event % 64 == 0 then
        local floor = call('HGET', about, 'eventfloor')
        if floor then
            call('XTRIM', stream, 'MINID', '~', unread(floor))
        end
        if archived then
            shorten(stream, tonumber(longest))
        end
    end
    return name
end

-- Notes for an archive that a row was written or deleted.
local function note(pipeline, key)
    if followed and key ~= '' then
        call('XADD', P .. ':changed', text(number()) .. '-0', 'p', pipeline, 'k', key)
    end
end

-- One change, to a row that was found at a revision.
local function change(op, found, last, pipeline)
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
    pass(1)
    note(pipeline, take())
    pass(1)
    if op == 'put' then
        put(hash, field, found)
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

-- What each change meets: the revisions of the rows; and the first that is not as expected, with the number of its change.
local function meet(changes)
    local found, wrong = {}, nil
    for n = 1, changes do
        local op = take()
        if op == 'event' then
            pass(5)
        elseif op == 'answered' then
            pass(4)
        else
            local hash, field = find()
            local expect = take()
            found[n] = revision(call('HGET', hash, field))
            if not wrong and not holds(expect, found[n]) then
                wrong = { 'conflict', text(n), text(found[n]) }
            end
            pass(1)
            pass(count())
        end
    end
    return found, wrong
end

-- Leases, each read once: no group changes one.
local leases = {}
local function lease(name)
    leases[name] = leases[name] or call('HMGET', name, 'term', 'holder')
    return leases[name]
end

local function group(refused)
    local pipeline, held, term, changes = take(), lease(take()), take(), count()
    local first = at
    local found, wrong = meet(changes)
    local behind = at
    if refused[pipeline] then
        return { 'behind' }
    end
    if held[1] ~= term or not held[2] then
        wrong = { 'term', held[1] or '0' }
    end
    if wrong then
        refused[pipeline] = true
        return wrong
    end
    at = first
    local last = '0'
    for n = 1, changes do
        last = change(take(), found[n], last, pipeline)
    end
    at = behind
    return { 'done', last }
end

return once(function()
    local answers, refused = {}, {}
    most = count()
    for n = 1, count() do
        answers[n] = group(refused)
    end
    return answers
end)
