-- The server has forgotten what it acknowledged: every term is over, so that every owner reads again.
local client, acknowledged, event, skipped, remembered, identity = take(), take(), count(), count(), count(), take()
local about = P .. ':about'
local given = tonumber(call('HGET', about, 'event')) or 0
-- Several that were started again may remember the same.
if remembered > 0 and given >= remembered then
    return 0
end
local now = millis()
for _ = 1, count() do
    local lease, lock = take(), take()
    local term = tonumber(call('HGET', lease, 'term'))
    if term then
        call('HSET', lease, 'term', text(math.max(term + 1, now)))
        call('HDEL', lease, 'holder')
        call('DEL', lock)
    end
end
-- Numbers that were given and forgotten are not given again, nor are those of others.
local last = text(math.max(given, event) + skipped)
call('HSET', about, 'event', last)
-- One that was emptied is the same store all the same.
call('HSETNX', about, 'identity', identity)
-- An archive has to read all rows again: some of what it has never was.
if call('HEXISTS', about, 'followed') == 1 then
    call('HSET', about, 'followed', last)
end
call('SET', P .. ':witness:' .. client, acknowledged, 'PX', 2592000000)
return 1
