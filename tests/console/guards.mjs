// What no text and no script may do, what the server answers, and the keyboard.
import { get as httpGet } from 'node:http';
import { Script } from 'node:vm';
import { gunzipSync } from 'node:zlib';
import { PROGRAM, assert, assertOwnTime, axe, dialog, is, open, screen, test, theBrowser, until } from './common.mjs';
import { ALL_HEADERS, PAGE_HEADERS, scripts, source } from './files.mjs';
import { start } from './server.mjs';

/** An answer as it was sent, which `fetch` would decode. */
const rawGet = (url, headers) =>
  new Promise((done, fail) => {
    httpGet(url, { headers }, async (answer) => {
      const parts = [];
      for await (const part of answer) parts.push(part);
      done({ status: answer.statusCode, headers: answer.headers, body: Buffer.concat(parts) });
    }).on('error', fail);
  });

const HOSTILE = `'"><img src=x onerror=alert(1)><script>alert(2)</script>\u202e\${alert(3)}`;

screen('hostile texts are only text, on every screen', {
  before(fake) {
    fake.link({ slug: 'hostile', title: HOSTILE, tags: [HOSTILE.slice(0, 50)], notes: HOSTILE, redirect_url: `javascript:alert(1)//${HOSTILE}`, fallback_url: 'data:text/html,x', data: JSON.stringify({ [HOSTILE]: HOSTILE, __proto__: 1 }), block_reason: HOSTILE, webhooks: [`https://x.example/${HOSTILE}`], days: Array(400).fill(3) });
    fake.hooks.set('hostile', [{ hit_id: 'x', url: `https://x.example/${HOSTILE}`, status: 'failed', attempts: 3, response_status: null, error: HOSTILE, created_at: new Date().toISOString(), updated_at: '', next_attempt_at: null }]);
    fake.keys.push(fake.key({ name: HOSTILE, prefix: HOSTILE.slice(0, 8) }));
    fake.rule('GET', /breakdown/, { status: 200, headers: {}, body: { dimension: 'browser', total: 3, other: 0, none: 0, private: 0, more: 0, labels: [{ label: HOSTILE, count: 3 }, { label: '__proto__', count: 1 }] } });
  },
}, async ({ page, base }) => {
  for (const [hash, ready] of [['#/links', 'onerror'], ['#/links/hostile', 'Blocked because'], ['#/links/hostile/webhooks', 'failed'], ['#/keys', 'onerror'], [`#/links?q=${encodeURIComponent(HOSTILE)}`, 'onerror'], [`#/links/${encodeURIComponent(HOSTILE)}`, 'There is no such link']]) {
    await page.goto(`${base}/console${hash}`);
    await page.getByText(ready).locator('visible=true').first().waitFor();
    if (hash === '#/links/hostile') {
      await page.getByLabel('Devices by').selectOption('browser');
      await page.getByText('__proto__', { exact: true }).waitFor();
      await page.getByRole('button', { name: 'Edit' }).click();
      await dialog(page).getByLabel('Leads to', { exact: true }).waitFor();
    }
    const found = await page.evaluate(() => [...document.querySelectorAll('a[href], img, script')].map((one) => one.getAttribute('href') ?? one.src).filter((to) => /^(javascript|data):/i.test(to)).concat([...document.querySelectorAll('img[onerror], body script')].map(() => 'markup')));
    assert.deepEqual(found, [], hash);
  }
  for (const link of await page.locator('a[target=_blank]').all()) assert.match(await link.getAttribute('rel'), /noopener noreferrer/);
});

screen('the policy refuses what the console never does', {}, async ({ page, bad }) => {
  await page.locator('.row').first().waitFor();
  const tried = await page.evaluate(async () => {
    const out = {};
    const attempt = async (name, act) => {
      try {
        await act();
        out[name] = 'went through';
      } catch {
        out[name] = 'refused';
      }
    };
    await attempt('innerHTML', () => (document.createElement('div').innerHTML = '<b>x</b>'));
    await attempt('eval', () => new Promise((done, fail) => setTimeout(() => { try { (0, eval)('1'); done(); } catch (error) { fail(error); } })));
    await attempt('fetch elsewhere', () => fetch('https://example.com/'));
    await attempt('script', () => (document.createElement('script').src = '/x.js'));
    await attempt('policy', () => trustedTypes.createPolicy('x', {}));
    return out;
  });
  assert.deepEqual(new Set(Object.values(tried)), new Set(['refused']), JSON.stringify(tried));
  assert.ok(bad.length > 0);
  bad.length = 0;
});

test('the page, its files and their headers are those of the contract, and all are below 60,000 bytes, gzipped', { skip: !PROGRAM && 'no program' }, async () => {
  const sizes = [];
  const get = async (path) => {
    const answer = await rawGet(`${PROGRAM}/${path}`, { 'accept-encoding': 'gzip' });
    assert.deepEqual([answer.status, answer.headers['content-encoding']], [200, 'gzip'], path);
    for (const [name, value] of Object.entries(ALL_HEADERS)) assert.equal(answer.headers[name], value, path);
    sizes.push(answer.body.length);
    return answer;
  };
  const page = await get('console');
  for (const [name, value] of Object.entries({ ...PAGE_HEADERS, 'cache-control': 'no-cache' })) assert.equal(page.headers[name], value);
  assert.equal((await fetch(`${PROGRAM}/console`, { headers: { 'if-none-match': page.headers.etag } })).status, 304);
  const away = await fetch(`${PROGRAM}/console/`, { redirect: 'manual' });
  assert.deepEqual([away.status, new URL(away.headers.get('location'), `${PROGRAM}/console/`).href], [308, `${PROGRAM}/console`]);
  const paths = [...gunzipSync(page.body).toString().matchAll(/(?:href|src)="(console\/[^"]+)"/g)].map(([, path]) => path);
  assert.equal(paths.length, 7);
  for (const path of paths) assert.match((await get(path)).headers['cache-control'], /immutable/);
  const sum = sizes.reduce((all, size) => all + size, 0);
  console.log(`all files: ${sum} bytes gzipped`);
  assert.ok(sum < 60_000, String(sum));
});

test('the scripts have the form that the program joins them by', () => {
  assert.ok(scripts().length > 20);
  for (const path of scripts()) {
    const lines = source(path).split('\n');
    for (const line of lines) {
      if (line.startsWith('import ')) assert.match(line, /^import (\w+|\{[^}]+\}) from '\.[^']+';$/, path);
      if (line.startsWith('export ')) assert.match(line, /^export (\{.+\};|(const|class|function|async function) \w+)/, path);
    }
    // Lines that begin like a comment, and types, are left out: none may be the text of a template, which another backtick would break.
    const marked = lines.map((line) => line.replace(/^import .*|^export (\{.*|)/, '').replace(/^\s*(?:\/\/|\/\*\*)|\/\*\* @type/g, '$& ` '));
    assert.doesNotThrow(() => new Script(marked.join('\n')), path);
  }
});

test('no two scripts declare the same name, nor one that the browser has: joined they are one scope', async () => {
  const declared = scripts().filter((path) => path !== 'theme.js').flatMap((path) =>
    source(path).split('\n').flatMap((line) => {
      const declaration = /^(?:export )?(?:async )?(?:const|let|function|class) (\[[^\]]*\]|\{[^}]*\}|\w+)/.exec(line);
      return declaration ? declaration[1].match(/\w+/g).map((name) => ({ name, path })) : [];
    }));
  assert.ok(declared.length > 250, String(declared.length));
  const names = declared.map(({ name }) => name);
  assert.deepEqual(declared.filter(({ name }) => names.indexOf(name) !== names.lastIndexOf(name)), []);
  const page = await (await theBrowser()).newPage();
  try {
    assert.deepEqual(await page.evaluate((all) => all.filter((name) => name in globalThis), names), []);
  } finally {
    await page.close();
  }
});

test('the console works below a path of a proxy', { timeout: 60_000 }, async () => {
  const below = await start({ path: '/short/er', console: PROGRAM });
  below.fake.fill();
  const { page, context, bad } = await open({ base: below.base, key: below.fake.secret });
  try {
    await page.getByLabel('Shorten a link').fill('https://example.com/');
    await page.keyboard.press('Enter');
    await page.getByText('Your link is ready').waitFor();
    await is(() => page.getByRole('img', { name: /QR code of/ }).evaluate((image) => image.decode().then(() => true)), true);
    assert.deepEqual(bad, []);
  } finally {
    await context.close();
    below.close();
  }
});

screen('the keyboard alone signs in, makes a link, opens it, edits it and comes back', { signedOut: true, fill: false }, async ({ page, fake }) => {
  const name = () => page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? (document.activeElement.labels?.[0] ?? document.activeElement).textContent.trim());
  /** Goes forward, or back, to a control. */
  const to = async (wanted, key = 'Tab') => {
    for (let i = 0; i < 60; i += 1) {
      if (wanted.test(await name())) return;
      await page.keyboard.press(key);
    }
    assert.fail(`no way to ${wanted}; at ${await name()}`);
  };
  await until(async () => /API key/.test(await name()), 'the focus is in the field');
  await page.keyboard.type(fake.secret);
  await page.keyboard.press('Enter');
  await page.getByLabel('Shorten a link').waitFor();
  await page.keyboard.press('Tab');
  await is(name, 'Skip to content');
  await page.keyboard.press('Enter');
  await to(/^Shorten a link/);
  await page.keyboard.type('https://example.com/by-keyboard');
  await page.keyboard.press('Enter');
  await page.getByText('Your link is ready').waitFor();
  await to(/N000001$/);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: /N000001$/ }).waitFor();
  await is(() => page.evaluate(() => document.activeElement.tagName), 'MAIN');
  await to(/^Edit$/);
  await page.keyboard.press('Enter');
  await dialog(page).getByLabel('Title').waitFor();
  await to(/^Title/);
  await page.keyboard.type('From the keyboard');
  await page.keyboard.press('Enter');
  await dialog(page).waitFor({ state: 'detached' });
  await is(name, 'Edit');
  await to(/^More actions$/);
  await page.keyboard.press('Enter');
  await to(/^Delete…$/);
  await page.keyboard.press('Enter');
  await dialog(page).waitFor();
  await page.keyboard.press('Escape');
  await dialog(page).waitFor({ state: 'detached' });
  await is(name, 'More actions');
  await to(/^Links$/, 'Shift+Tab');
  await page.keyboard.press('Enter');
  await page.getByText('From the keyboard').waitFor();
  assert.deepEqual(await axe(page), []);
});

screen('every screen takes less than 200 ms of its own, with 400 days, full lists and many links', {
  before(fake) {
    const labels = Array.from({ length: 1000 }, (_, i) => ({ label: `label-${i}.example.com`, count: 1000 - i }));
    fake.rule('GET', /breakdown/, { status: 200, headers: {}, body: { dimension: 'browser', total: 500_500, other: 0, none: 0, private: 0, more: 0, labels } });
    for (let i = 0; i < 120; i += 1) fake.link({ days: Array(400).fill(i), tags: ['a', 'b', 'c'] });
  },
}, ({ page, context, base }) =>
  assertOwnTime(page, context, base, [
    ['#/links', () => page.locator('.row').nth(24).waitFor(), () => page.getByRole('button', { name: 'Show more' }).click().then(() => page.locator('.row').nth(49).waitFor())],
    ['#/links/autumn', () => page.getByText('t.co').waitFor(), () => page.getByLabel('Devices by').selectOption('browser').then(() => page.getByText('label-999.example.com').waitFor({ state: 'attached' }))],
    ['#/links/autumn?range=all', () => page.getByRole('slider').waitFor(), () => page.getByText('Show as a table').click()],
    ['#/links/autumn/webhooks', () => page.locator('.deliveries tr').nth(20).waitFor(), () => page.getByRole('button', { name: 'Show more' }).click()],
    ['#/keys', () => page.getByText('old deploy script').waitFor(), () => page.getByRole('button', { name: 'New key' }).click()],
    ['#/bulk', () => page.getByLabel('Addresses').waitFor(), () => page.locator('input[type=file]').setInputFiles({ name: 'list.csv', mimeType: 'text/csv', buffer: Buffer.from(`url,title\n${'https://example.com/,A title\n'.repeat(2000)}`) }).then(() => page.getByText('2,000 rows').waitFor())],
  ]));
