-- Groups: all checks of one, then all its changes.
local about = P .. ':about'
-- In the place of a shard on a cluster, what the home gave for this request: `FIRST LAST DONE FOLLOWED ARCHIVED`. Numbers up to
-- `DONE` were written here once.
local reserved = ARGV[7] and { first = tonumber(ARGV[7]), last = tonumber(ARGV[8]), done = tonumber(ARGV[9]) }
-- Whether somebody archives, and the last event that the archive has: nothing after it is trimmed.
local followed, archived = unpack(reserved and { ARGV[10] ~= '' and ARGV[10], ARGV[11] ~= '' and ARGV[11] }
    or call('HMGET', about, 'followed', 'archivedevents'))

-- How many pointers are looked at once in a thousand numbers: more than come in that time.
local SWEPT = 1500

-- Numbers of events and notes, taken from the store for the whole request at once. `most` is how many it can need; what is left
-- is given back. Once in about a thousand numbers, whoever they are for, it is time to look for what is old.
local most, given, last, is_time = 0, 0, 0, false
local function number()
    if given == last then
        assert(not reserved, 'more numbers than were given')
        last = call('HINCRBY', about, 'event', most)
        given = last - most
        is_time = math.floor(given / 1024) < math.floor(last / 1024)
    end
    given = given + 1
    return given
end
local function give_back()
    if given < last then
        call('HSET', about, 'event', text(given))
    end
end

-- Of a shard on a cluster `event` is the number up to which everything is written that ever will be. Streams only grow, so numbers
-- below it come too late; a place that is behind what it has done has forgotten something.
local function unfit()
    local closed = tonumber(call('HGET', about, 'event')) or 0
    if closed < reserved.done then
        return { 'rollback' }
    elseif reserved.last > 0 and reserved.first <= closed then
        return { 'late', text(closed) }
    end
    if reserved.last > 0 then
        given, last = reserved.first - 1, reserved.last
    end
    is_time = math.floor(closed / 1024) < math.floor(last / 1024)
end
local function close()
    if reserved.last > (tonumber(call('HGET', about, 'event')) or 0) then
        call('HSET', about, 'event', text(reserved.last))
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

-- Pointers to events that are gone from their streams go too, some of them each time, going round: the longest stream of one
-- pipeline says how many events there are at least before anything can be gone.
local function sweep(longest)
    local feed, gone = P .. ':feed', {}
    if call('XLEN', feed) <= longest then
        return
    end
    local from = call('HGET', about, 'feedswept') or '-'
    local found = call('XRANGE', feed, from, '+', 'COUNT', SWEPT)
    for _, entry in ipairs(found) do
        if #call('XRANGE', P .. ':events:' .. entry[2][2], entry[1], entry[1]) == 0 then
            gone[#gone + 1] = entry[1]
        end
    end
    if #gone > 0 then
        call('XDEL', feed, unpack(gone))
    end
    call('HSET', about, 'feedswept', #found < SWEPT and '-' or '(' .. found[#found][1])
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

local function append(by)
    local pipeline, kind, data, longest, retention = take(), take(), take(), take(), count()
    pass(1)
    view(count())
    local stream = P .. ':events:' .. pipeline
    local name = text(number())
    local id = name .. '-0'
    if archived then
        call('XADD', stream, id, 'kind', kind, 'data', data, 'by', by)
    else
        call('XADD', stream, 'MAXLEN', '~', longest, id, 'kind', kind, 'data', data, 'by', by)
    end
    call('XADD', P .. ':feed', id, 'pipeline', pipeline)
    if is_time then
        is_time = false
        forget(name, retention)
        sweep(tonumber(longest))
    end
    -- By its own length: the numbers of a pipeline that always comes after the same others may all be odd.
    if call('XLEN', stream) % 64 == 0 then
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
local function change(op, found, last, pipeline, by)
    if op == 'event' then
        return append(by)
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
            pass(count())
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
    local pipeline, name, term, changes = take(), take(), take(), count()
    local held, first = lease(name), at
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
    local last, by = '0', string.sub(name, #P + 8) .. ':' .. term
    for n = 1, changes do
        last = change(take(), found[n], last, pipeline, by)
    end
    at = behind
    return { 'done', last }
end

local answer = once(function()
    local answers, refused = {}, {}
    most = count()
    for n = 1, count() do
        answers[n] = group(refused)
    end
    if not reserved then
        give_back()
    end
    return answers
end, reserved and unfit)
-- Also when it was done before, with other numbers: these are not needed.
if reserved and tonumber(answer[1]) then
    close()
end
return answer
