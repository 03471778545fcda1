// Keeps a page fresh, and adds keys. Every page can be read and every form used without it.
'use strict';
(() => {
  const root = document.documentElement, body = document.body;
  root.classList.add('js');
  const byId = (id) => document.getElementById(id);

  // ---- the zone of this browser, once: the server shows times in it from then on
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const cookie = (name) => (document.cookie.split('; ').find((c) => c.startsWith(name + '=')) || '').slice(name.length + 1);
  if (zone && decodeURIComponent(cookie('il_zone')) !== zone) {
    document.cookie = `il_zone=${zone}; path=/; samesite=lax; max-age=34560000`;
    if (!cookie('il_tz') || cookie('il_tz') === 'mine') setTimeout(() => refresh(true));
  }

  // ---- fresh content: the same page is asked for again, and what is live in it is changed in place
  const MIN = 1000;
  let asked = 0, took = 0, waiting = null, since = body.dataset.now, typing = false;
  const live = () => byId('live');
  async function refresh(always) {
    waiting = null;
    if (!live() || (document.hidden && !always)) return;
    if (live().contains(document.activeElement) && /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) { later(2000); return; }
    if (live().querySelector('details[open].pop')) { later(2000); return; }
    asked = performance.now();
    try {
      const answer = await fetch(location.href, { headers: { accept: 'text/html' }, credentials: 'same-origin' });
      if (answer.redirected && new URL(answer.url).pathname === '/login') { location.reload(); return; }
      if (!answer.ok) return;
      const text = await answer.text();
      const now = /<body data-now="([^"]*)"/.exec(text);
      if (now) since = now[1];
      await htmx.swap({ text, sourceElement: body, target: live(), select: '#live', selectOOB: '#nav', swap: 'outerMorph' });
      tail();
    } catch { offline(); } finally { took = performance.now() - asked; }
  }
  function later(wait) {
    if (waiting) return;
    const least = Math.max(MIN, took * 10) - (performance.now() - asked);
    waiting = setTimeout(refresh, Math.max(wait || 250, least));
  }

  // ---- one stream for all tabs of a browser: who holds the lock listens and tells the others
  const bus = 'BroadcastChannel' in window ? new BroadcastChannel('interlock') : null;
  const dot = byId('live-dot'), note = byId('offline');
  let state = 'live', isLost = false, letGo = null;
  function show(next) {
    if (next === state) return;
    const was = state;
    state = next;
    dot.classList.toggle('off', next !== 'live');
    dot.querySelector('span').textContent = next === 'live' ? 'Live' : 'Offline';
    note.hidden = next === 'live';
    if (next !== 'live') byId('offline-since').textContent = since;
    if (was !== 'live' && next === 'live') refresh(true);
  }
  function tell(message) { heard(message); if (bus) bus.postMessage(message); }
  function heard(message) {
    if (message.state) show(message.state);
    if (message.pipeline !== undefined) {
      const own = live() && live().dataset.pipeline;
      if (!own || own === message.pipeline) later(live() && 'slow' in live().dataset ? 3000 : 250);
    }
    if (message.hello && letGo) bus.postMessage({ state });
  }
  if (bus) bus.onmessage = (event) => heard(event.data);
  function offline() { tell({ state: 'offline' }); }

  // Read as text: an event's name is its kind, and there are many.
  function listen(done) {
    const end = new AbortController();
    let again, last = '';
    async function read() {
      try {
        const answer = await fetch('/api/v1/stream' + (last ? '?after=' + last : ''), { signal: end.signal, headers: { accept: 'text/event-stream' } });
        if (answer.status === 401) { location.reload(); return; }
        if (!answer.ok) throw new Error(answer.status);
        tell({ state: 'live' });
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let rest = '';;) {
          const { value, done: isOver } = await reader.read();
          if (isOver) break;
          const lines = (rest + value).split('\n');
          rest = lines.pop();
          for (const line of lines) one(line);
        }
      } catch { /* it says so below */ }
      if (end.signal.aborted) return;
      offline();
      again = setTimeout(read, 2000);
    }
    function one(line) {
      if (line.startsWith('id:')) last = line.slice(3).trim();
      if (!line.startsWith('data:')) return;
      try { tell({ pipeline: JSON.parse(line.slice(5)).pipeline || '' }); } catch { tell({ pipeline: '' }); }
    }
    read();
    letGo = () => { clearTimeout(again); end.abort(); letGo = null; done(); };
  }

  let queued = null;
  function lead() {
    if (queued || letGo) return;
    if (!navigator.locks || !bus) { poll(); return; }
    queued = new AbortController();
    navigator.locks.request('interlock-live', { signal: queued.signal }, () => new Promise(listen))
      .catch(() => {}).finally(() => { queued = null; });
    bus.postMessage({ hello: true });
  }
  // Without locks (plain HTTP from another machine) a page asks by itself.
  let polling = null;
  function poll() {
    if (polling) return;
    polling = setInterval(async () => {
      if (document.hidden) return;
      try { await fetch('/healthz', { cache: 'no-store' }); show('live'); later(); } catch { show('offline'); }
    }, 5000);
  }
  function rest() { if (letGo) letGo(); else if (queued) queued.abort(); }
  if (byId('live')) {
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) rest(); else { lead(); refresh(true); }
    });
    addEventListener('pagehide', rest);
    addEventListener('pageshow', (event) => { if (event.persisted) { lead(); refresh(true); } });
    if (!document.hidden) lead();
    // What goes by (ages, what runs) is looked at from time to time.
    setInterval(() => { if (!document.hidden && state === 'live') later(); }, 15000);
  }

  // ---- a log that goes on
  function tail() {
    for (const log of document.querySelectorAll('pre[data-tail]:not([data-tailing])')) {
      log.setAttribute('data-tailing', '');
      follow(log).catch(() => {});
    }
  }
  async function follow(log) {
    const answer = await fetch(log.dataset.tail);
    if (!answer.ok || !answer.body) return;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done || !log.isConnected) { reader.cancel(); break; }
      const isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
      log.append(value);
      if (isAtEnd) log.scrollTop = log.scrollHeight;
    }
    later();
  }
  tail();

  // ---- copy, tick all
  document.addEventListener('click', async (event) => {
    const button = event.target.closest('[data-copy]');
    if (button) {
      try { await navigator.clipboard.writeText(button.dataset.copy); } catch { return; }
      const label = button.lastChild, text = label.textContent;
      label.textContent = 'Copied';
      setTimeout(() => { label.textContent = text; }, 1200);
    }
    for (const open of document.querySelectorAll('details.pop[open]')) if (!open.contains(event.target)) open.open = false;
  });
  document.addEventListener('change', (event) => {
    const all = event.target.closest('[data-all]');
    if (!all) return;
    for (const box of document.querySelectorAll(`input[name="${all.dataset.all}"]`)) box.checked = all.checked;
  });

  // ---- keys
  const rows = () => [...document.querySelectorAll('[data-row]')];
  const current = () => document.querySelector('[data-row].at');
  function move(by) {
    const all = rows(), at = all.indexOf(current());
    const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))];
    if (!next) return;
    current()?.classList.remove('at');
    next.classList.add('at');
    (next.querySelector('[data-open]') || next).focus?.({ preventScroll: true });
    next.scrollIntoView({ block: 'nearest' });
  }
  const PAGES = { f: ['/', 'Fleet'], r: ['/runs', 'Runs'], i: ['/incidents', 'Incidents'], b: ['/backfills', 'Backfills'], s: ['/system', 'System'] };
  let isGoing = false;
  document.addEventListener('keydown', (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') { event.preventDefault(); palette(); return; }
    if (event.key === 'Escape') for (const open of document.querySelectorAll('details.pop[open]')) { open.open = false; open.querySelector('summary').focus(); }
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || document.querySelector('dialog[open]')) return;
    if (isGoing && PAGES[event.key]) { location.href = PAGES[event.key][0]; return; }
    isGoing = event.key === 'g';
    if (isGoing) setTimeout(() => { isGoing = false; }, 1500);
    const act = { '/': () => byId('q').focus(), j: () => move(1), k: () => move(-1), '?': () => byId('keys').showModal(), w: () => { const why = current()?.querySelector('[data-why],[data-open]'); if (why) location.href = why.href; } }[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  // ---- the palette
  const dialog = byId('palette'), field = byId('go'), found = byId('found');
  let turn = 0;
  function palette() { dialog.showModal(); field.value = ''; fill(''); }
  function entry(href, text, more) {
    const item = document.createElement('li'), link = document.createElement('a'), small = document.createElement('small');
    link.href = href; link.textContent = text; small.textContent = more || '';
    link.append(' ', small); item.append(link);
    return item;
  }
  async function fill(text) {
    const own = ++turn;
    const pages = Object.values(PAGES).filter(([, name]) => name.toLowerCase().includes(text.toLowerCase())).map(([href, name]) => entry(href, name, 'page'));
    let pipelines = [];
    if (text) {
      try {
        const answer = await fetch('/api/v1/pipelines?limit=8&q=' + encodeURIComponent(text));
        if (answer.ok) pipelines = (await answer.json()).items.map((one) => entry('/pipelines/' + encodeURIComponent(one.pipeline), one.pipeline, one.owner || ''));
      } catch { /* the dot says it */ }
    }
    if (own === turn) found.replaceChildren(...pipelines, ...pages);
  }
  field.addEventListener('input', () => fill(field.value.trim()));
  dialog.addEventListener('keydown', (event) => {
    const links = [...found.querySelectorAll('a')], at = links.indexOf(document.activeElement);
    if (event.key === 'ArrowDown') { event.preventDefault(); links[Math.min(links.length - 1, at + 1)]?.focus(); }
    if (event.key === 'ArrowUp') { event.preventDefault(); (links[at - 1] || field).focus(); }
    if (event.key === 'Enter' && document.activeElement === field) { event.preventDefault(); if (links[0]) location.href = links[0].href; }
  });
  for (const one of document.querySelectorAll('dialog')) one.addEventListener('click', (event) => { if (event.target === one) one.close(); });
})();
