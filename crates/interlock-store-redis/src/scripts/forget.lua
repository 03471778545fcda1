-- Takes out what is old: the floor first, then each row that is still as it was read, then events.
-- `FLOOR`, empty for none, then what the floor's row becomes: `HASH FIELD REST CLAIMED …`.
local function raise(floor)
    local hash, field = find()
    local known = call('HGET', hash, field)
    local body = known and string.match(known, '^%d+ %S+ %S+ %S+ (.*)$')
    -- Floors are whole seconds, so that their text sorts by time.
    if body and cjson.decode(body).at >= floor then
        pass(count())
        return
    end
    pass(1)
    put(hash, field, revision(known))
end

-- The runs of a slot, which begin with its place.
local function drop_runs(pipeline, place)
    local attempts = P .. ':index:attempts:' .. pipeline
    local found = call('ZRANGEBYLEX', attempts, '[' .. place .. ' ', '(' .. place .. '!')
    for _, member in ipairs(found) do
        local hash = address('run', member)
        call('DEL', hash)
        call('ZREM', attempts, member)
        call('ZREM', P .. ':index:runs', member)
        call('ZREM', P .. ':index:runs:' .. pipeline, member)
        call('ZREM', P .. ':runs:' .. pipeline, string.sub(hash, #P + 6))
    end
end

local function drop_events(last)
    local feed = P .. ':feed'
    while true do
        local found = call('XRANGE', feed, '-', last, 'COUNT', 100)
        for _, entry in ipairs(found) do
            call('XDEL', P .. ':events:' .. entry[2][2], entry[1])
            call('XDEL', feed, entry[1])
        end
        if #found < 100 then
            return
        end
    end
end

return once(function()
    local floor, gone = take(), 0
    if floor ~= '' then
        raise(floor)
    end
    for _ = 1, count() do
        local pipeline, place = take(), take()
        local hash, field = find()
        local is_as_read = text(revision(call('HGET', hash, field))) == take()
        local entries = count()
        if is_as_read then
            call('HDEL', hash, field)
            index(count())
            gone = gone + 1
            if place ~= '' then
                drop_runs(pipeline, place)
            end
        else
            pass(entries)
        end
    end
    local last = take()
    if last ~= '0' then
        drop_events(last)
    end
    return { text(gone) }
end)
