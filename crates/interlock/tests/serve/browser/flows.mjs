// What a person does in a browser. `node flows.mjs FLOW BASE …`; a line on standard output says how far it is.
import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';
import { existsSync } from 'node:fs';
import { chromium } from 'playwright-core';
import { AxeBuilder } from '@axe-core/playwright';

const [flow, base, ...rest] = process.argv.slice(2);
const program = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
const browser = await chromium.launch({
  executablePath: program,
  args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (text) => console.log(text);
const goOn = () => lines.next();
const PATIENCE = 60_000;
const complaints = [];

async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 1000 }, timezoneId: 'Europe/Berlin', ...options });
  context.setDefaultTimeout(PATIENCE);
  await context.addCookies([{ name: 'il_zone', value: 'Europe/Berlin', url: base }]);
  return context;
}

/// Everything that a browser complains of is a mistake, but for what a flow expects.
function watch(page, isExpected = () => false) {
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type()) && !isExpected(message.text())) complaints.push(`${page.url()}: ${message.text()}`);
  });
  page.on('pageerror', (error) => complaints.push(`${page.url()}: ${error.message}`));
}

const text = (page) => page.locator('main').innerText();

const flows = {
  // missed → why → backfill preview → apply → completed; and a plan that another hand has changed
  async gap(missed) {
    const page = await (await open()).newPage();
    watch(page, (text) => text.includes('412'));
    await page.goto(base + missed);
    assert.match(await page.locator('h1 .pill').innerText(), /Missed|Skipped: no catchup/);
    await page.getByRole('link', { name: 'Backfill…' }).click();
    assert.match(await text(page), /1 of 1 slots will run/);
    say('another plan');
    await goOn();
    await page.getByRole('button', { name: 'Run 1 slot' }).click();
    await page.getByText('The plan changed, nothing was started.').waitFor();
    // The next gap, all the way.
    await page.goto(base + missed);
    await page.getByRole('link', { name: 'Backfill…' }).click();
    await page.getByLabel('All, completed too').check();
    await page.getByLabel('Why').fill('a gap of the night');
    await page.getByRole('button', { name: 'Plan again' }).click();
    await page.getByRole('button', { name: 'Run 1 slot' }).click();
    await page.getByText('1 of 1 done').waitFor();
    await page.getByText('1 completed').waitFor();
    await page.goto(base + missed);
    await page.locator('h1 .pill', { hasText: 'Completed' }).waitFor();
    assert.match(await text(page), /Backfill/);
  },

  // axe on every page, in a theme and at a width
  async axe(missed, colorScheme, width) {
    const incident = (await (await fetch(base + '/api/v1/incidents')).json()).items[0];
    const pages = [
      '/', '/runs', '/runs?status=failed', '/incidents', `/incidents/${incident.pipeline}/${encodeURIComponent(incident.key)}`,
      '/incidents?state=resolved', '/dead-letters', '/silences', '/silences/new?pipelines=fail*&reason=x', '/backfills',
      '/pipelines/gappy', '/pipelines/nightly-backup', '/pipelines/daily-report?range=30d', missed,
      '/pipelines/daily-report/slots/cron/2027-03-28T01:30:00Z', missed.replace('/slots/often/', '/slots/often/2020-01-01T00:00:00Z?').split('?')[0],
      '/pipelines/gappy/backfill?from=2026-01-01T00:00:00Z&to=2026-01-01T00:01:00Z', '/pipelines/gappy/resume', '/system', '/login', '/nothing-here',
    ];
    const context = await open({ colorScheme, viewport: { width: +width, height: 900 } });
    const page = await context.newPage();
    watch(page, (text) => text.includes('status of 40'));
    for (const path of pages) {
      await page.goto(base + path);
      // One frame, one page: nothing has to be put together from several.
      const found = await new AxeBuilder({ page }).setLegacyMode().analyze();
      for (const one of found.violations) complaints.push(`${path}: ${one.id}: ${one.nodes.map((node) => node.target.join(' ')).slice(0, 3).join(' | ')}`);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (wide > 1) complaints.push(`${path}: ${wide} px wider than the screen`);
      say(path);
    }
  },

  // the server goes while eight tabs are open: they say so, and come back
  async gone() {
    const context = await open();
    const tabs = [];
    for (let number = 0; number < 8; number += 1) {
      const page = await context.newPage();
      await page.goto(base + (number % 2 ? '/runs' : '/incidents'));
      tabs.push(page);
    }
    for (const page of tabs) await page.locator('#live-dot', { hasText: 'Live' }).waitFor();
    say('eight tabs are live');
    const last = tabs.at(-1);
    await last.bringToFront();
    await last.getByText('No connection to Interlock since').waitFor();
    assert.match(await last.locator('#offline-since').innerText(), /^\d\d:\d\d:\d\d CET$|^\d\d:\d\d:\d\d CEST$/);
    assert.ok((await last.locator('tr').count()) > 1, 'what was there stays');
    say('offline');
    await last.locator('#live-dot', { hasText: 'Live' }).waitFor();
    await last.getByText('No connection to Interlock since').waitFor({ state: 'hidden' });
    say('live again');
  },

  // the picture of the README: `node flows.mjs picture http://127.0.0.1:8420 docs/fleet.png`, beside this file's modules
  async picture(file) {
    const page = await (await open({ viewport: { width: 1440, height: 600 }, colorScheme: 'light' })).newPage();
    await page.goto(base + '/?range=3h');
    await page.screenshot({ path: file });
  },

  // login, a wrong token, acknowledging, and the end of the session, all without script
  async token(token) {
    const page = await (await open({ javaScriptEnabled: false })).newPage();
    await page.goto(base + '/incidents');
    assert.match(page.url(), /\/login\?next=\/incidents$/);
    await page.getByLabel('Token').fill('il_wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    assert.match(await text(page), /unknown, revoked or expired/);
    await page.getByLabel('Token').fill(token);
    await page.getByRole('button', { name: 'Sign in' }).click();
    assert.match(page.url(), /\/incidents$/);
    const until = Date.now() + PATIENCE;
    while (!(await page.locator('.ilist a').count())) {
      assert.ok(Date.now() < until, 'no incident was opened');
      await page.waitForTimeout(500);
      await page.reload();
    }
    await page.locator('.ilist a').first().click();
    await page.getByLabel('Note').fill('I look at it');
    await page.locator('article').getByRole('button', { name: 'Acknowledge' }).click();
    assert.match(await text(page), /Acknowledged\./);
    assert.match(await text(page), /token marta/);
    say('revoke');
    await goOn();
    while (!page.url().includes('/login')) {
      assert.ok(Date.now() < until + PATIENCE, 'a revoked token opens the pages');
      await page.waitForTimeout(300);
      await page.goto(base + '/runs');
    }
  },
};

try {
  await flows[flow](...rest);
  assert.deepEqual(complaints, []);
} finally {
  await browser.close();
}
process.exit(0);
