-- Numbers on a cluster: one order over all shards. Those of `_system`, at home, are taken by the script that writes them; the others
-- are given out here before a shard writes them. For each shard the home knows the last number that it gave (`given:N`), when
-- (`at:N`), and the last of which it heard that the shard has written it (`done:N`).
local about, numbers = P .. ':about', P .. ':numbers'

-- `SHARD EVENTS NOTES DONE`: numbers for so many events, and for so many notes if somebody archives.
local function reserve()
    local shard, events, notes, done = take(), count(), count(), count()
    local found = call('HMGET', about, 'event', 'followed', 'archivedevents')
    local last = tonumber(found[1]) or 0
    local written = tonumber(call('HGET', numbers, 'done:' .. shard)) or 0
    if done > written then
        call('HSET', numbers, 'done:' .. shard, text(done))
        written = done
    end
    local wanted = events + (found[2] and notes or 0)
    if wanted == 0 then
        return { '0', '0', text(written), '', '' }
    end
    local first, final = text(last + 1), text(last + wanted)
    call('HSET', about, 'event', final)
    call('HSET', numbers, 'given:' .. shard, final, 'at:' .. shard, text(millis()))
    return { first, final, text(written), found[2] or '', found[3] or '' }
end

return once(function()
    pass(1)
    return reserve()
end, function()
    -- `KNOWN`: who knows of a higher number than was ever given knows that this place has forgotten it.
    if tonumber(words[1]) > (tonumber(call('HGET', about, 'event')) or 0) then
        return { 'rollback' }
    end
end)
