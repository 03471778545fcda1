-- The server has forgotten what it acknowledged: every term is over, so that every owner reads again.
local client, acknowledged, event = take(), take(), count()
local now, ended = millis(), 0
for _ = 1, count() do
    local lease, lock = take(), take()
    local term = tonumber(call('HGET', lease, 'term'))
    if term then
        call('HSET', lease, 'term', text(math.max(term + 1, now)))
        call('HDEL', lease, 'holder')
        call('DEL', lock)
        ended = ended + 1
    end
end
-- Numbers that were given and forgotten are not given again, nor are those of others.
local about = P .. ':about'
local last = text(math.max(tonumber(call('HGET', about, 'event')) or 0, event) + 1000000)
call('HSET', about, 'event', last)
-- An archive has to read all rows again: some of what it has never was.
if call('HEXISTS', about, 'followed') == 1 then
    call('HSET', about, 'followed', last)
end
call('SET', P .. ':witness:' .. client, acknowledged, 'PX', 2592000000)
return ended
