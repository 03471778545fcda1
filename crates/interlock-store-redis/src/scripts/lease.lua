-- Leases, by the server's clock.
local function acquire()
    local lease, lock, holder, ttl = take(), take(), take(), count()
    local last = call('HMGET', lease, 'term', 'holder', 'expires')
    local now = millis()
    if last[2] and last[2] ~= holder and tonumber(last[3]) > now then
        return {}
    end
    -- A term is never smaller than the time: a server that has forgotten the last one does not give it again.
    local term, expires = text(math.max((tonumber(last[1]) or 0) + 1, now)), text(now + ttl)
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

return once(function()
    local verb = take()
    if verb == 'acquire' then
        return acquire()
    elseif verb == 'renew' then
        return renew()
    elseif verb == 'announce' then
        return announce()
    end
    return release()
end)
