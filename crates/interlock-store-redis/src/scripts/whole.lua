-- The store as a whole: how far an archive has read, and what comes from another store.
local about, noted = P .. ':about', P .. ':changed'

local function archived()
    if take() == 'none' then
        call('HDEL', about, 'followed', 'archivedevents', 'archivedchanges')
        call('DEL', noted)
        return {}
    end
    local events, changes = count(), count()
    local found = call('HMGET', about, 'event', 'followed', 'archivedevents')
    local last, since = tonumber(found[1]) or 0, tonumber(found[2])
    -- What was before the first call was not noted.
    since = since and math.max(since, math.min(changes, last)) or last
    events = math.max(events, tonumber(found[3]) or 0)
    call('HSET', about, 'followed', text(since), 'archivedevents', text(events), 'archivedchanges', text(changes))
    call('XTRIM', noted, 'MINID', text(since + 1))
    return { text(since) }
end

-- In the place of a shard on a cluster: what the home says of the notes that are kept here.
local function noted_since()
    local since = take()
    if since == '' then
        call('DEL', noted)
    else
        call('XTRIM', noted, 'MINID', text(tonumber(since) + 1))
    end
    return {}
end

local function keep(stream, id, ...)
    if #call('XRANGE', stream, id, id) == 0 then
        call('XADD', stream, id, ...)
    end
end

local function import()
    for _ = 1, count() do
        local hash, field = find()
        put(hash, field, count() - 1)
    end
    local last = tonumber(call('HGET', about, 'event')) or 0
    for _ = 1, count() do
        local number, pipeline, kind, data = take(), take(), take(), take()
        keep(P .. ':events:' .. pipeline, number .. '-0', 'kind', kind, 'data', data)
        keep(P .. ':feed', number .. '-0', 'pipeline', pipeline)
        last = math.max(last, tonumber(number))
    end
    for _ = 1, count() do
        local letters, key, zset, member, received, body = take(), take(), take(), take(), take(), take()
        if call('HEXISTS', letters, key) == 0 then
            local number = text(call('HINCRBY', about, 'inbox', 1))
            call('HSET', letters, key, number .. ' ' .. received .. ' ' .. body)
            call('ZADD', zset, number, member)
        end
    end
    call('HSET', about, 'event', text(math.max(last, count())))
    local identity = take()
    if identity ~= '' then
        call('HSET', about, 'identity', identity)
    end
    return {}
end

return once(function()
    local verb = take()
    if verb == 'archived' then
        return archived()
    elseif verb == 'noted' then
        return noted_since()
    end
    return import()
end)
