// The console with the program: what a new user does first, by mouse and by keyboard, and what the fake may have got wrong.
import { createServer } from 'node:http';
import { PROGRAM as base, acting, assert, axe, dialog, is, open, startProgram, test, until } from './common.mjs';

const root = process.env.CONSOLE_ROOT_KEY;
const AGENT = { 'user-agent': 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0' };
const MINUTE = 60_000;

const headers = { 'x-api-key': root, 'content-type': 'application/json' };
const call = async (method, path, body) => (await fetch(`${base}/${path}`, { method, headers, body: body && JSON.stringify(body) })).json();
const click = (short_url) => fetch(short_url, { redirect: 'manual', headers: AGENT });

/** @param {string} name @param {{key?: string, hash?: string}} options @param {(seen: any) => Promise<void>} act */
const way = (name, options, act) =>
  test(name, { timeout: 2 * MINUTE }, async () => {
    const seen = await open({ base, ...options });
    await acting(name, seen, () => act(seen));
  });

/** Acts with a program that starts for the first time, as its greeting says, and with a page that a link may lead to.
 * @param {string} name @param {(page: any, secret: string, target: string, began: number) => Promise<void>} act */
const firstUse = (name, act) =>
  test(name, { timeout: 2 * MINUTE }, async () => {
    const goal = createServer((request, response) => response.end('The goal'));
    await new Promise((done) => goal.listen(0, '127.0.0.1', done));
    const began = Date.now();
    const program = await startProgram();
    let seen;
    try {
      const [, secret] = /root key +(sp_\w+)/.exec(program.greeting);
      const [, address] = /Sign in with the root key: (http:\S+)\/console/.exec(program.greeting);
      const target = `http://127.0.0.1:${goal.address().port}/goal`;
      seen = await open({ base: address, hash: '', elsewhere: [new URL(target).origin] });
      await act(seen.page, secret, target, began);
      console.log(`${name}: ${((Date.now() - began) / 1000).toFixed(1)} s`);
      assert.ok(Date.now() - began < MINUTE);
      assert.deepEqual(seen.bad, []);
    } finally {
      await seen?.context.close();
      await program.stop();
      goal.close();
    }
  });

/** The page to which a new tab leads. */
async function led(page, follow) {
  const [tab] = await Promise.all([page.context().waitForEvent('page'), follow()]);
  await tab.getByText('The goal').waitFor();
  await tab.close();
}

const clicked = (page) => until(async () => (await page.getByRole('slider').count()) > 0 && /: 1 click$/.test(await page.getByRole('slider').getAttribute('aria-valuetext')), 'the click is in the plot');

firstUse('from the first start to a click in the plot by mouse, within a minute', async (page, secret, target) => {
  await page.getByLabel('API key', { exact: true }).fill(secret);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByLabel('Shorten a link').fill(target);
  await page.getByRole('button', { name: 'Shorten' }).click();
  await page.getByText('Your link is ready').waitFor();
  assert.ok(await page.getByRole('img', { name: /QR code of/ }).evaluate((image) => image.decode().then(() => image.naturalWidth)));
  await page.getByRole('button', { name: 'Copy link' }).click();
  await is(() => page.evaluate(() => navigator.clipboard.readText()), /^http:\/\/127\.0\.0\.1:\d+\/\w{7}$/);
  await page.locator('.made').getByRole('link').first().click();
  await page.getByText('No clicks yet').waitFor();
  await page.getByRole('button', { name: 'More actions' }).click();
  await led(page, () => page.getByRole('link', { name: 'Follow it' }).click());
  await clicked(page);
  assert.deepEqual(await axe(page), []);
});

firstUse('the same by keyboard alone, within a minute', async (page, secret, target) => {
  const name = () => page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? (document.activeElement.labels?.[0] ?? document.activeElement).textContent.trim());
  const to = async (wanted, key = 'Tab') => {
    for (let i = 0; i < 60 && !wanted.test(await name()); i += 1) await page.keyboard.press(key);
    assert.match(await name(), wanted);
  };
  await until(async () => /API key/.test(await name()), 'the focus is in the field');
  await page.keyboard.type(secret);
  await page.keyboard.press('Enter');
  await page.getByLabel('Shorten a link').waitFor();
  await to(/^Shorten a link/);
  await page.keyboard.type(target);
  await page.keyboard.press('Enter');
  await page.getByText('Your link is ready').waitFor();
  await to(/^(Copy link|Copied)/);
  await page.keyboard.press('Enter');
  await page.getByText('Copied').first().waitFor({ state: 'attached' });
  const short_url = await page.evaluate(() => navigator.clipboard.readText());
  await page.keyboard.press('Shift+Tab');
  await until(async () => short_url.endsWith(`/${(await name()).split('/').at(-1) || '-'}`), 'the focus is at the short link');
  await page.keyboard.press('Enter');
  await page.getByText('No clicks yet').waitFor();
  await to(/^More actions$/);
  await page.keyboard.press('Enter');
  await to(/^Follow it/);
  await led(page, () => page.keyboard.press('Enter'));
  await clicked(page);
  await to(/^Clicks per day$/);
  await page.keyboard.press('ArrowLeft');
  await is(() => page.getByRole('slider').getAttribute('aria-valuetext'), /: 0 clicks$/);
});

/** All fields of a record. One that is not here has yet to come into the console: `fields.js`, `form.js` and `screens/link.js`. */
const FIELDS = [
  'short_id', 'short_url', 'redirect_url', 'created_at', 'data', 'slug', 'webhooks', 'tracked', 'title', 'tags', 'notes', 'archived', 'expires_at', 'not_before', 'fallback_url', 'redirect_status',
  'cache_seconds', 'preview', 'skip_bots', 'block_reason', 'updated_at', 'revision', 'state',
];

test('the console has all fields of a link', async () => {
  assert.deepEqual(Object.keys(await call('PUT', 'links/all-fields', { redirect_url: 'https://example.com/' })).sort(), FIELDS.toSorted());
});

way('a link with all fields is made, edited beside somebody else, archived and deleted', { key: root }, async ({ page }) => {
  await page.getByLabel('Shorten a link').fill('https://example.com/fields');
  await page.getByText('Own name, title, expiry').click();
  await page.getByLabel('Own name').fill('with-fields');
  await page.getByLabel('Title').fill('A title');
  await page.getByLabel('Tags').fill('one, two');
  await page.getByText('Time', { exact: true }).click();
  await page.getByLabel('Starts').fill('2026-01-02T03:04');
  await page.getByLabel('Ends').fill('2040-01-02T03:04');
  await page.getByLabel('Afterwards leads to').fill('https://example.com/over');
  await page.getByText('Redirect', { exact: true }).click();
  await page.getByLabel('Status', { exact: true }).selectOption('307');
  await page.getByLabel('Browsers may keep it for (seconds)').fill('60');
  await page.getByText('Webhooks and data', { exact: true }).click();
  await page.getByLabel('Webhooks', { exact: true }).fill('https://hooks.example.com/clicks');
  await page.getByLabel('Data', { exact: true }).fill('{"price": 1.0, "big": 12345678901234567890, "old": {"a": 1, "b": 2}}');
  await page.getByLabel('No webhooks for clicks of bots').check();
  await page.getByText('Notes and more', { exact: true }).click();
  await page.getByLabel('Notes').fill('some notes');
  await page.getByLabel('shows where it leads').uncheck();
  await page.getByRole('button', { name: 'Shorten' }).click();
  await page.getByText('Your link is ready').waitFor();
  const { fallback_url, redirect_status, cache_seconds, webhooks, skip_bots, preview, notes } = await call('GET', 'links/with-fields');
  assert.deepEqual({ fallback_url, redirect_status, cache_seconds, webhooks, skip_bots, preview, notes }, {
    fallback_url: 'https://example.com/over', redirect_status: 307, cache_seconds: 60, webhooks: ['https://hooks.example.com/clicks'], skip_bots: true, preview: false, notes: 'some notes',
  });
  await page.locator('.made').getByRole('link').first().click();
  await page.getByText('"big": 12345678901234567890').waitFor();
  await page.getByRole('button', { name: 'Edit' }).click();
  await dialog(page).getByLabel('Title').fill('Mine');
  await dialog(page).getByText('Webhooks and data', { exact: true }).click();
  await dialog(page).getByLabel('Data', { exact: true }).fill('{"price": 1.0, "big": 12345678901234567890, "old": {"b": 3.50}, "new": [null]}');
  await call('PATCH', 'links/with-fields', { title: 'Theirs', notes: null });
  await dialog(page).getByRole('button', { name: 'Save' }).click();
  await dialog(page).getByText('This link was changed meanwhile').waitFor();
  await dialog(page).getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByText('Mine', { exact: true }).waitFor();
  const record = await (await fetch(`${base}/links/with-fields`, { headers })).text();
  assert.match(record, /"data":\{"price":1\.0,"big":12345678901234567890,"old":\{"b":3\.50\},"new":\[null\]\}/);
  assert.match(record, /"notes":null/);
  await page.getByRole('button', { name: 'More actions' }).click();
  await page.getByRole('button', { name: 'Archive', exact: true }).click();
  await page.getByText('archived', { exact: true }).waitFor();
  await page.getByRole('link', { name: 'Links', exact: true }).last().click();
  await page.getByRole('link', { name: 'Archived' }).click();
  await page.getByRole('button', { name: 'Actions for with-fields' }).click();
  await page.getByRole('button', { name: 'Delete…' }).click();
  await dialog(page).getByRole('button', { name: 'Delete' }).click();
  await page.getByText('Nothing archived').waitFor();
});

way('faults of the program stand at the fields', { key: root }, async ({ page }) => {
  await call('PUT', 'links/is-taken', { redirect_url: 'https://example.com/' });
  await page.getByLabel('Shorten a link').fill('ftp://example.com/');
  await page.getByText('Own name, title, expiry').click();
  await page.getByLabel('Own name').fill('console');
  await page.getByText('Webhooks and data', { exact: true }).click();
  await page.getByLabel('Webhooks', { exact: true }).fill('https://example.com/a\nhttps://example.com/a');
  await page.getByRole('button', { name: 'Shorten' }).click();
  await until(async () => (await page.locator('[aria-invalid]').count()) === 3, 'three fields with faults');
  await page.getByLabel('Shorten a link').fill('https://example.com/');
  await page.getByLabel('Own name').fill('is-taken');
  await page.getByLabel('Webhooks', { exact: true }).fill('');
  await page.getByRole('button', { name: 'Shorten' }).click();
  await page.getByText('This name is taken by another link').waitFor();
});

way('search and filters ask the program what it knows', { key: root }, async ({ page }) => {
  await call('PUT', 'links/find-me', { redirect_url: 'https://example.com/find', tags: ['needle'], title: 'Needle' });
  await page.getByRole('searchbox').fill('NEEDLE');
  await until(async () => (await page.locator('.row').count()) === 1, 'one link');
  await page.getByRole('button', { name: 'Filters' }).click();
  for (const [index, text] of [['tag', 'needle'], ['slug_prefix', 'find-'], ['target', 'https://example.com/find']]) {
    await page.getByLabel('Has').selectOption(index);
    await page.getByLabel('Text', { exact: true }).fill(text);
    await page.getByRole('button', { name: 'Apply' }).click();
    await until(() => page.url().includes(`${index}=`), 'the filter is in the address');
    await until(async () => (await page.locator('.row').count()) === 1 && (await page.locator('.list').getAttribute('aria-busy')) === 'false', `one link by ${index}`);
  }
  await page.getByLabel('Made from').fill('2020-01-01');
  await page.getByLabel('Made from').dispatchEvent('change');
  await page.getByLabel('State', { exact: true }).selectOption('active');
  await until(async () => (await page.locator('.row').count()) === 1 && (await page.getByRole('alert').count()) === 0, 'no fault');
});

way('a webhook is tested, its deliveries are shown and replayed', { key: root }, async ({ page }) => {
  let status = 500;
  let received = 0;
  const receiver = createServer((request, response) => {
    received += 1;
    request.resume();
    response.writeHead(status).end();
  });
  await new Promise((done) => receiver.listen(0, '127.0.0.1', done));
  try {
    const url = `http://127.0.0.1:${receiver.address().port}/hook`;
    const { short_url } = await call('PUT', 'links/with-hook', { redirect_url: 'https://example.com/', webhooks: [url] });
    await page.goto(`${base}/console#/links/with-hook/webhooks`);
    await page.getByRole('button', { name: `Test ${url}` }).click();
    await page.locator('.tested').getByText('http 500').waitFor();
    await click(short_url);
    await until(async () => {
      await page.getByRole('button', { name: 'Refresh' }).click();
      return (await page.locator('.deliveries').getByText('failed', { exact: true }).count()) === 1;
    }, 'the delivery has failed');
    status = 204;
    await page.getByRole('button', { name: /^Replay the delivery/ }).click();
    await page.locator('.deliveries').getByText('delivered', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Replay…' }).click();
    await dialog(page).getByLabel('Which').selectOption('any');
    await dialog(page).getByRole('button', { name: 'Replay' }).click();
    await page.getByText('1 delivery queued again.').waitFor();
    await until(() => received >= 6, 'all attempts');
  } finally {
    receiver.close();
  }
});

way('a key is made, signs in, sees what it may, and is revoked', { key: root, hash: '#/keys' }, async ({ page }) => {
  await page.getByRole('button', { name: 'New key' }).click();
  await dialog(page).getByLabel('Name').fill('for the console');
  await dialog(page).getByLabel('See usage').uncheck();
  await dialog(page).getByLabel('Expires').selectOption('90');
  await dialog(page).getByRole('button', { name: 'Make key' }).click();
  const secret = await page.locator('.secret code').first().textContent();
  assert.match(secret, /^sp_\w{43}$/);
  assert.deepEqual(await axe(page), []);
  await page.getByRole('button', { name: 'I have copied it' }).click();
  const other = await open({ base, key: secret, hash: '#/keys' });
  try {
    await other.page.getByText('lacks the scope usage:read').waitFor();
    await other.page.getByRole('button', { name: 'Rotate this key…' }).click();
    await dialog(other.page).getByRole('button', { name: 'Rotate' }).click();
    await other.page.locator('.secret code').waitFor();
    await other.page.getByRole('link', { name: 'Links', exact: true }).click();
    await other.page.getByText('No links yet').waitFor();
    await page.getByRole('button', { name: 'Actions for for the console' }).click();
    await page.getByRole('button', { name: 'Change…' }).click();
    await dialog(page).getByLabel('Name').fill('renamed');
    await dialog(page).getByRole('button', { name: 'Save' }).click();
    await page.getByRole('button', { name: 'Actions for renamed' }).click();
    await page.getByRole('button', { name: 'Revoke…' }).click();
    await dialog(page).getByRole('button', { name: 'Revoke' }).click();
    await page.getByRole('rowheader', { name: /renamed/ }).waitFor({ state: 'detached' });
    await other.page.getByRole('link', { name: 'Archived' }).click();
    await other.page.getByRole('heading', { name: 'Your session has ended' }).waitFor();
    assert.deepEqual(other.bad, []);
  } finally {
    await other.context.close();
  }
});

way('many links are made at once, and rows are refused by the program', { key: root, hash: '#/bulk' }, async ({ page }) => {
  await page.getByLabel('Addresses').fill(`url,slug,tags,data\nhttps://example.com/1,many-1,"a,b","{""n"":1.0}"\nftp://x,many-2,,\nhttps://example.com/3,many-1,,\n`);
  await page.getByRole('button', { name: 'Make 3 links' }).click();
  await page.getByText('1 of 3 made').waitFor();
  await page.getByText('2 rows refused').waitFor();
  assert.match(await (await fetch(`${base}/links/many-1`, { headers })).text(), /"n":1\.0/);
});
