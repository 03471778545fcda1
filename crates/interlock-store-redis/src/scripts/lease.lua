-- Leases, by the server's clock.
local function acquire()
    local lease, lock, holder, ttl, least = take(), take(), take(), count(), count()
    local last = call('HMGET', lease, 'term', 'holder', 'expires')
    local now = millis()
    if last[2] and last[2] ~= holder and tonumber(last[3]) > now then
        return {}
    end
    -- A term is never smaller than the time: a server that has forgotten the last one does not give it again.
    local next_term = math.max((tonumber(last[1]) or 0) + 1, now, least)
    local term, expires = text(next_term), text(now + ttl)
    gave(next_term)
    call('HSET', lease, 'term', term, 'holder', holder, 'expires', expires)
    call('SET', lock, holder, 'PX', math.max(ttl, 1))
    return { term, expires }
end

local function renew()
    local lease, lock, term, ttl = take(), take(), take(), count()
    local last = call('HMGET', lease, 'term', 'holder')
    if last[1] ~= term or not last[2] then
        return {}
    end
    local expires = text(millis() + ttl)
    call('HSET', lease, 'expires', expires)
    call('SET', lock, last[2], 'PX', math.max(ttl, 1))
    return { term, expires, last[2] }
end

-- At home on a cluster: the copy of a lease that its shard has given. A term that is over is not brought back; the last one is told.
local function register()
    local lease, term, holder, ttl = take(), take(), take(), count()
    local last = call('HMGET', lease, 'term', 'holder')
    local known = tonumber(last[1]) or 0
    if known > tonumber(term) or (known == tonumber(term) and not last[2]) then
        return { text(known) }
    end
    local expires = text(millis() + ttl)
    call('HSET', lease, 'term', term, 'holder', holder, 'expires', expires)
    return { term, expires }
end

local function release()
    local lease, lock, term = take(), take(), take()
    if call('HGET', lease, 'term') == term and call('HDEL', lease, 'holder') == 1 then
        call('DEL', lock)
    end
    return {}
end

-- Who is there: each says so again and again.
local function announce()
    local instances, member, ttl = take(), take(), count()
    local now = millis()
    call('ZREMRANGEBYSCORE', instances, '-inf', now)
    call('ZADD', instances, text(now + ttl), member)
    return {}
end

-- What an instance says of itself; what others said long ago goes.
local function report()
    local reports, instance, body, kept = take(), take(), take(), count()
    local now = millis()
    local all = call('HGETALL', reports)
    for n = 1, #all, 2 do
        local said = tonumber(string.match(all[n + 1], '^%d+'))
        if not said or said < now - kept then
            call('HDEL', reports, all[n])
        end
    end
    call('HSET', reports, instance, text(now) .. ' ' .. body)
    return {}
end

return once(function()
    local verb = take()
    if verb == 'acquire' then
        return acquire()
    elseif verb == 'renew' then
        return renew()
    elseif verb == 'register' then
        return register()
    elseif verb == 'announce' then
        return announce()
    elseif verb == 'report' then
        return report()
    end
    return release()
end)
