-- What waits: reports on their way in, notifications on their way out.
local function post()
    local letters, applied, key, zset, member, body = take(), take(), take(), take(), take(), take()
    if call('HEXISTS', applied, key) == 0 and call('HEXISTS', letters, key) == 0 then
        local number = text(call('HINCRBY', P .. ':about', 'inbox', 1))
        call('HSET', letters, key, number .. ' ' .. text(millis()) .. ' ' .. body)
        call('ZADD', zset, number, member)
    end
    return {}
end

local function claim()
    local limit, ttl, now, rows = count(), count(), millis() * 1000, {}
    for_claimable(now, function(member, hash, field, _, value)
        if #rows >= limit then
            return false
        end
        local last, rest = string.match(value, '^(%d+) %S+ (.*)$')
        value = text(tonumber(last) + 1) .. ' ' .. text(now + ttl * 1000) .. ' ' .. rest
        call('HSET', hash, field, value)
        rows[#rows + 1] = { member, value }
        return true
    end)
    return rows
end

-- A word with one digit for each row that it becomes: whether that was written; an empty one if the notification had changed.
local function settle()
    local hash, field = find()
    local found = revision(call('HGET', hash, field))
    local expected, length = take(), count()
    if found == 0 or text(found) ~= expected then
        pass(length)
        return ''
    end
    call('HDEL', hash, field)
    index(count())
    local written = {}
    for n = 1, count() do
        local name, rows = take(), count()
        if call('HEXISTS', hash, name) == 1 then
            pass(rows)
            written[n] = '0'
        else
            put(hash, name, name == field and found or 0)
            written[n] = '1'
        end
    end
    return table.concat(written)
end

return once(function()
    local verb = take()
    if verb == 'post' then
        return post()
    elseif verb == 'claim' then
        return claim()
    elseif verb == 'show' then
        for _ = 1, count() do
            view(count())
        end
        return {}
    end
    local outcomes = {}
    for n = 1, count() do
        outcomes[n] = settle()
    end
    return outcomes
end)
