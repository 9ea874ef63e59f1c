import { assert, dialog, is, screen, until } from './common.mjs';
import { problem } from './fake.mjs';

const hash = '#/links/autumn';
const figure = (page, label) => page.locator('.figures > div').filter({ hasText: label }).locator('dd');
const stored = (fake, id = 'autumn') => fake.links.find(({ short_id }) => short_id === id);

screen('the first view of a link takes at most three requests', { hash }, async ({ page, calls }) => {
  await page.getByRole('slider', { name: 'Clicks per day' }).waitFor();
  await page.getByRole('img', { name: /QR code/ }).waitFor();
  const own = calls.filter((call) => !call.includes('/api-keys/self') && !call.includes('/hits/stream'));
  assert.deepEqual(own.sort(), ['GET /autumn/qr?format=svg', 'GET /links/autumn', 'GET /links/autumn/analytics']);
});

screen('a click is counted live in the figures and in the plot', { hash }, async ({ page, fake }) => {
  await page.getByText('live', { exact: true }).waitFor();
  const number = async () => Number((await figure(page, 'All clicks').textContent()).replaceAll(',', ''));
  const before = await number();
  const bar = () => page.getByRole('slider').getAttribute('aria-valuetext');
  const told = await bar();
  fake.hit('autumn');
  await until(async () => (await number()) === before + 1, 'one more click');
  await until(async () => (await bar()) !== told, 'another bar');
  fake.hit('autumn');
  await until(async () => (await number()) === before + 2, 'two more clicks');
});

screen('ranges are bars of hours, days, weeks and months', { hash }, async ({ page, fake }) => {
  for (const [range, unit, count] of [['24 h', 'hour', 24], ['7 days', 'day', 7], ['90 days', 'day', 90], ['Year', 'week', 53], ['All', 'day', undefined]]) {
    await page.getByRole('navigation', { name: 'Range' }).getByRole('link', { name: range, exact: true }).click();
    await page.getByRole('slider', { name: `Clicks per ${unit}` }).waitFor();
    if (count) await until(async () => Number(await page.getByRole('slider').getAttribute('aria-valuemax')) === count - 1, `${count} bars`);
  }
  await page.getByRole('link', { name: 'Dates', exact: true }).click();
  await page.getByLabel('From').fill('2026-01-01');
  await page.getByLabel('From').dispatchEvent('change');
  await until(() => fake.log.some(({ path, query }) => path.endsWith('/series') && query.from === '2026-01-01' && query.interval === 'week'), 'a series from the date');
  await page.goBack();
});

screen('the plot is read by the keyboard and as a table', { hash }, async ({ page }) => {
  await page.getByRole('slider').focus();
  await page.keyboard.press('Home');
  const first = await page.getByRole('slider').getAttribute('aria-valuetext');
  await page.keyboard.press('ArrowRight');
  await until(async () => (await page.getByRole('slider').getAttribute('aria-valuetext')) !== first, 'the next bar');
  await page.getByText('Show as a table').click();
  await is(() => page.getByRole('region', { name: 'Clicks per day, table' }).locator('tbody tr').count(), 30);
});

screen('clicks are shown with bots, without them, or of them alone', { hash }, async ({ page, fake }) => {
  await page.getByRole('slider').waitFor();
  const all = await figure(page, 'All clicks').textContent();
  await page.getByRole('navigation', { name: 'Bots' }).getByRole('link', { name: 'Without' }).click();
  await until(async () => (await figure(page, 'All clicks').textContent()) !== all, 'other figures');
  assert.equal(fake.log.filter(({ path }) => path.endsWith('/analytics')).at(-1).query.bots, 'exclude');
});

screen('breakdowns are shown by dimension, with what is not told, and with more labels', { hash }, async ({ page }) => {
  await page.getByText('news.ycombinator.com').waitFor();
  await page.getByText('Germany').waitFor();
  await page.getByLabel('Devices by').selectOption('browser');
  await page.getByText('Firefox').waitFor();
  await page.getByText('Not told').waitFor();
  await page.getByLabel('Referrers by').selectOption('utm_campaign');
  await page.getByText('label 9', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Show more' }).first().click();
  await page.getByText('label 12', { exact: true }).waitFor();
  await page.getByRole('link', { name: 'Range above' }).click();
  await page.getByText('label 9', { exact: true }).first().waitFor();
});

screen('a service without series, breakdowns and streams is told apart from a fault', { hash, before: (fake) => (fake.series = false) }, async ({ page }) => {
  await page.getByRole('slider').waitFor();
  await page.getByRole('link', { name: 'Year', exact: true }).click();
  await page.getByText('does not have other ranges').waitFor();
  await page.getByLabel('Devices by').selectOption('browser');
  await page.getByText('does not have this breakdown').waitFor();
  assert.equal(await page.getByRole('alert').count(), 0);
});

screen('a link that is not tracked says so', { hash: '#/links/Hs9dPw5' }, async ({ page }) => {
  await page.getByText('Clicks of this link are not kept').waitFor();
});

screen('a link without clicks says where they will be', { hash: '#/links/none', before: (fake) => fake.link({ slug: 'none' }) }, async ({ page, fake }) => {
  await page.getByText('No clicks yet').waitFor();
  await page.getByText('live', { exact: true }).waitFor();
  fake.hit('none');
  await page.getByRole('slider').waitFor();
});

for (const id of ['zzzzzzz', '..', '%2e%2e%2fusage', '%']) {
  screen(`a link that does not exist is named so: ${id}`, { hash: `#/links/${id}` }, async ({ page }) => {
    await page.getByText('There is no such link').waitFor();
  });
}

screen('a page that does not exist leads back', { hash: '#/nowhere' }, async ({ page }) => {
  await page.getByRole('link', { name: 'To the links' }).click();
  await page.locator('.row').first().waitFor();
});

screen('numbers in the data of a link are shown as they were sent', { hash }, async ({ page }) => {
  await page.getByText('"id": 12345678901234567890').waitFor();
  await page.getByText('"price": 1.0').waitFor();
});

screen('colours of a QR code are part of its address, and a refusal is told', { hash }, async ({ page }) => {
  await page.getByLabel('Modules').fill('#112233');
  await until(async () => (await page.getByRole('img', { name: /QR code/ }).getAttribute('src')).includes('dark=%23112233'), 'the colour');
  await is(() => page.getByRole('link', { name: 'PNG' }).getAttribute('href'), /format=png&scale=10&dark=%23112233/);
  await page.getByLabel('Background').fill('#112233');
  await page.getByText('is too close to light to be read').waitFor();
  await page.getByLabel('Transparent').check();
  await page.getByRole('img', { name: /QR code/ }).waitFor();
});

screen('an edit sends only what was changed', { hash }, async ({ page, fake }) => {
  await page.getByRole('button', { name: 'Edit' }).click();
  await dialog(page).getByLabel('Title').fill('Winter sale');
  await dialog(page).getByText('Webhooks and data', { exact: true }).click();
  const data = dialog(page).getByLabel('Data', { exact: true });
  await is(() => data.inputValue(), /"price": 1\.0/);
  await data.fill((await data.inputValue()).replace('"autumn-2026"', '"winter"'));
  await dialog(page).getByRole('button', { name: 'Save' }).click();
  await page.getByText('Winter sale').waitFor();
  const sent = fake.log.find(({ method }) => method === 'PATCH');
  assert.equal(sent.body, '{"title":"Winter sale","data":{"campaign":"winter"}}');
  assert.equal(sent.headers['if-match'], '"1"');
  assert.match(stored(fake).data, /12345678901234567890/);
});

screen('an edit that was begun is there again after the dialog was closed, and after a reload', { hash }, async ({ page }) => {
  await page.getByRole('button', { name: 'Edit' }).click();
  await dialog(page).getByLabel('Title').fill('Half');
  await page.keyboard.press('Escape');
  await dialog(page).waitFor({ state: 'detached' });
  await page.reload();
  await page.getByRole('button', { name: 'Edit' }).click();
  await dialog(page).getByText('Your edits from before').waitFor();
  await is(() => dialog(page).getByLabel('Title').inputValue(), 'Half');
  await dialog(page).getByRole('button', { name: 'Discard them' }).click();
  await is(() => dialog(page).getByLabel('Title').inputValue(), 'Autumn sale');
});

screen('a conflict shows both versions, and the person chooses', { hash }, async ({ page, fake }) => {
  await page.getByRole('button', { name: 'Edit' }).click();
  await dialog(page).getByLabel('Title').fill('Mine');
  await dialog(page).getByLabel('Tags').fill('mine');
  Object.assign(stored(fake), { title: 'Theirs', notes: 'their notes', tags: ['theirs'], revision: 2 });
  await dialog(page).getByRole('button', { name: 'Save' }).click();
  await dialog(page).getByText('This link was changed meanwhile').waitFor();
  for (const text of ['Theirs', 'Mine', 'their notes']) await dialog(page).getByText(text, { exact: true }).waitFor();
  await dialog(page).getByRole('group', { name: 'Which Tags to save' }).getByRole('button', { name: 'Keep theirs' }).click();
  await dialog(page).getByRole('button', { name: 'Continue editing' }).click();
  await is(() => dialog(page).getByLabel('Title').inputValue(), 'Mine');
  await is(() => dialog(page).getByLabel('Tags').inputValue(), 'theirs');
  await dialog(page).getByRole('button', { name: 'Save' }).click();
  await dialog(page).waitFor({ state: 'detached' });
  const { title, tags, notes } = stored(fake);
  assert.deepEqual({ title, tags, notes }, { title: 'Mine', tags: ['theirs'], notes: 'their notes' });
});

screen('a link that is deleted while it is edited keeps what was typed', { hash }, async ({ page, fake }) => {
  await page.getByRole('button', { name: 'Edit' }).click();
  await dialog(page).getByLabel('Title').fill('Typed');
  fake.links.splice(fake.links.indexOf(stored(fake)), 1);
  await dialog(page).getByRole('button', { name: 'Save' }).click();
  await dialog(page).getByText('Unknown link.').waitFor();
  assert.equal(await dialog(page).getByLabel('Title').inputValue(), 'Typed');
});

screen('a fault of an edit stands at its field', { hash }, async ({ page, fake }) => {
  fake.rule('PATCH', /links/, problem(422, 'The request has faults.', { errors: [{ pointer: '/tags/1', detail: 'must be shorter' }, { pointer: '/cache_seconds', detail: 'must be at most 86400' }, { pointer: '/data/a', detail: 'is too deep' }] }), 1);
  await page.getByRole('button', { name: 'Edit' }).click();
  await dialog(page).getByLabel('Title').fill('x');
  await dialog(page).getByRole('button', { name: 'Save' }).click();
  await dialog(page).getByText('“autumn” must be shorter').waitFor();
  await dialog(page).getByText('Must be at most 86400').waitFor();
  await dialog(page).getByText('A: is too deep').waitFor();
});

screen('a link is archived and deleted from its own screen', { hash }, async ({ page, fake }) => {
  await page.getByRole('button', { name: 'More actions' }).click();
  await page.getByRole('button', { name: 'Archive', exact: true }).click();
  await page.getByText('archived', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'More actions' }).click();
  await page.getByRole('button', { name: 'Delete…' }).click();
  await dialog(page).getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('heading', { name: 'Your links' }).waitFor({ state: 'attached' });
  assert.equal(stored(fake), undefined);
});

screen('webhooks are listed with their deliveries, tested and replayed', { hash: '#/links/autumn/webhooks' }, async ({ page, fake }) => {
  await page.getByText('15 delivered').waitFor();
  await is(() => page.locator('.deliveries tbody tr').count(), 25);
  await page.getByRole('button', { name: 'Show more' }).click();
  await until(async () => (await page.locator('.deliveries tbody tr').count()) === 30, 'all deliveries');
  await page.getByRole('button', { name: 'Test all' }).click();
  await page.getByText('answered 204').waitFor();
  await page.locator('.tested').filter({ hasText: 'failed' }).waitFor();
  await page.getByRole('navigation', { name: 'Which deliveries' }).getByRole('link', { name: 'Failed' }).click();
  await until(async () => (await page.locator('.deliveries tbody tr').count()) === 7, 'the failed ones');
  await page.getByRole('button', { name: /^Replay the delivery/ }).first().click();
  await page.getByText('Queued again.').waitFor();
  assert.equal(fake.hooks.get('autumn').filter(({ status }) => status === 'failed').length, 6);
  await page.getByRole('button', { name: 'Replay…' }).click();
  await dialog(page).getByRole('button', { name: 'Replay' }).click();
  await page.getByText('6 deliveries queued again.').waitFor();
  await page.getByText('No failed deliveries').waitFor();
});

screen('a replay in several parts goes on after a rate limit', { hash: '#/links/autumn/webhooks' }, async ({ page, fake }) => {
  fake.rule('POST', /replay/, { status: 202, headers: {}, body: { queued: 1000, next_cursor: 'c2' } }, 1);
  fake.rule('POST', /replay/, problem(429, 'Limit.', { headers: { 'retry-after': '1' } }), 1);
  await page.getByRole('button', { name: 'Replay…' }).click();
  await dialog(page).getByRole('button', { name: 'Replay' }).click();
  await dialog(page).getByText('1,000 queued so far').waitFor();
  await dialog(page).getByRole('button', { name: 'Go on' }).click();
  await page.getByText('1,007 deliveries queued again.').waitFor();
  assert.equal(JSON.parse(fake.log.filter(({ path }) => path.endsWith('replay')).at(-1).body).cursor, 'c2');
});

screen('a link without webhooks says how to get some', { hash: '#/links/m1CoVi3/webhooks' }, async ({ page }) => {
  await page.getByText('No webhooks', { exact: true }).waitFor();
});

screen('what is typed while an edit is saved stays, to be saved next', { hash }, async ({ page, fake }) => {
  const release = fake.hold('PATCH', /links/);
  await page.getByRole('button', { name: 'Edit' }).click();
  await dialog(page).getByLabel('Title').fill('First');
  await dialog(page).getByRole('button', { name: 'Save' }).click();
  await dialog(page).getByText('Saving…').waitFor();
  await dialog(page).getByLabel('Tags').fill('second');
  release();
  await dialog(page).getByRole('button', { name: 'Save' }).waitFor();
  assert.equal(await dialog(page).getByLabel('Title').inputValue(), 'First');
  assert.equal(await dialog(page).getByLabel('Tags').inputValue(), 'second');
  await dialog(page).getByRole('button', { name: 'Save' }).click();
  await dialog(page).waitFor({ state: 'detached' });
  assert.deepEqual(fake.log.filter(({ method }) => method === 'PATCH').map(({ body, headers }) => [body, headers['if-match']]), [['{"title":"First"}', '"1"'], ['{"tags":["second"]}', '"2"']]);
});

screen('without a stream the figures are read from time to time', { hash, before: (fake) => fake.rule('GET', /stream/, problem(429, 'Too many streams.', { headers: { 'retry-after': '60' } })) }, async ({ page, fake }) => {
  const number = async () => Number((await figure(page, 'All clicks').textContent()).replaceAll(',', ''));
  await page.getByRole('slider').waitFor();
  const before = await number();
  fake.hit('autumn');
  await until(async () => (await number()) === before + 1, 'one more click');
  assert.equal(await page.getByText('live', { exact: true }).count(), 0);
});

screen('a stream that was cut goes on where it was', { hash }, async ({ page, fake }) => {
  await page.getByText('live', { exact: true }).waitFor();
  fake.hit('autumn');
  for (const { response } of fake.streams) response.end();
  await page.getByText('live', { exact: true }).waitFor({ state: 'detached' });
  await page.getByText('live', { exact: true }).waitFor();
  assert.equal(fake.log.filter(({ path }) => path.endsWith('/stream')).at(-1).headers['last-event-id'], `0-${fake.hits}`);
});

screen('a range that is asked for never shows the bars of the one before', { hash }, async ({ page, fake }) => {
  const ranges = page.getByRole('navigation', { name: 'Range' });
  await ranges.getByRole('link', { name: '90 days' }).click();
  await page.getByRole('slider', { name: 'Clicks per day' }).waitFor();
  const release = fake.hold('GET', /series/);
  await ranges.getByRole('link', { name: 'Year' }).click();
  await page.getByText('Clicks per week').first().waitFor();
  assert.equal(await page.getByRole('slider').count(), 0);
  release();
  await page.getByRole('slider', { name: 'Clicks per week' }).waitFor();
});

screen('a blocked link says why, and root unblocks it', { hash, before: (fake) => Object.assign(fake.keys[0], { name: 'root', created_by: null }) }, async ({ page, fake }) => {
  await page.getByRole('button', { name: 'More actions' }).click();
  await page.getByRole('button', { name: 'Block…' }).click();
  await dialog(page).getByLabel('Reason').fill('phishing');
  await dialog(page).getByRole('button', { name: 'Block', exact: true }).click();
  await page.getByText('Blocked because').waitFor();
  await page.getByText('phishing', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'More actions' }).click();
  await page.getByRole('button', { name: 'Unblock' }).click();
  await page.getByText('Blocked because').waitFor({ state: 'detached' });
  assert.equal(stored(fake).state, 'active');
});

screen('clicks of all links are shown over a range, with breakdowns, and as CSV', { hash: '#/clicks' }, async ({ page, fake }) => {
  await page.getByRole('heading', { name: /^[\d,]+ clicks$/ }).waitFor();
  await page.getByRole('slider', { name: 'Clicks per day' }).waitFor();
  await page.getByText('label 9', { exact: true }).first().waitFor();
  await page.getByRole('navigation', { name: 'Range' }).getByRole('link', { name: 'Year' }).click();
  await page.getByRole('slider', { name: 'Clicks per week' }).waitFor();
  await page.getByRole('navigation', { name: 'Bots' }).getByRole('link', { name: 'Without' }).click();
  await until(() => fake.log.some(({ path, query }) => path === '/analytics/series' && query.interval === 'week' && query.bots === 'exclude'), 'a series without bots');
  await page.getByText('Show as a table').click();
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'CSV', exact: true }).click()]);
  assert.equal(download.suggestedFilename(), 'clicks.csv');
  assert.equal(fake.log.at(-1).query.format, 'csv');
});

screen('a day in the address that is none counts as missing', { hash: `${hash}?scope=range&range=custom&from=foo&until=275760-09-13` }, async ({ page, fake }) => {
  await page.getByRole('slider', { name: 'Clicks per day' }).waitFor();
  const series = fake.log.find(({ path }) => path.endsWith('/series'));
  assert.match(series.query.from, /^\d{4}-\d\d-\d\d$/);
  assert.equal(series.query.until, undefined);
});

screen('breakdowns of a service that keeps no days are of whole months', { hash: `${hash}?scope=range&range=custom&from=2025-12-03&until=2026-01-05` }, async ({ page, fake }) => {
  await page.getByText('Mon, 1 Dec 2025 to Sat, 31 Jan 2026, UTC').waitFor();
  const asked = () => fake.log.filter(({ path }) => path.endsWith('/breakdown')).map(({ query }) => [query.from, query.until]);
  await until(() => asked().length === 3, 'three breakdowns');
  assert.deepEqual(asked()[0], ['2025-12-01', '2026-02-01']);
  fake.rule('GET', /breakdown/, ({ query }) => (query.get('from').endsWith('-01') ? undefined : problem(422, 'The request has faults.', { errors: [{ parameter: 'from', detail: 'must be the first of a month' }] })));
  await page.getByRole('navigation', { name: 'Range' }).getByRole('link', { name: '7 days' }).click();
  await page.getByText('Whole months').first().waitFor();
  assert.match(asked().at(-1)[0], /-01$/);
});

screen('the bars of another range have each click once', { hash }, async ({ page, fake }) => {
  const ranges = page.getByRole('navigation', { name: 'Range' });
  const number = async () => Number((await figure(page, 'All clicks').textContent()).replaceAll(',', ''));
  const bar = () => page.getByRole('slider').getAttribute('aria-valuetext');
  await ranges.getByRole('link', { name: '90 days' }).click();
  await page.getByRole('slider', { name: 'Clicks per day' }).waitFor();
  // What the fake tells of the last day is the same at each request.
  const told = await bar();
  await ranges.getByRole('link', { name: '30 days' }).click();
  await page.getByText('live', { exact: true }).waitFor();
  const before = await number();
  for (let i = 0; i < 3; i += 1) fake.hit('autumn');
  await until(async () => (await number()) === before + 3, 'three more clicks');
  await ranges.getByRole('link', { name: '90 days' }).click();
  await is(bar, told);
  fake.hit('autumn');
  const count = (text) => Number(/([\d,]+) clicks?$/.exec(text)[1].replaceAll(',', ''));
  await until(async () => count(await bar()) === count(told) + 1, 'the click that came since');
});

screen('figures of another choice of bots are marked as old until the new ones are there', { hash }, async ({ page, fake }) => {
  await page.getByRole('slider').waitFor();
  await page.getByLabel('Devices by').selectOption('browser');
  const release = fake.hold('GET', /analytics$/);
  await page.getByRole('navigation', { name: 'Bots' }).getByRole('link', { name: 'Without' }).click();
  await page.locator('[aria-busy=true].old .figures').waitFor();
  assert.equal(await page.getByLabel('Devices by').inputValue(), 'browser');
  release();
  await page.locator('[aria-busy=false] .figures').waitFor();
  assert.equal(await page.getByLabel('Devices by').inputValue(), 'browser');
});

screen('half a date is a fault, and no missing one', { hash }, async ({ page, fake }) => {
  await page.getByRole('button', { name: 'Edit' }).click();
  await dialog(page).getByText('Time', { exact: true }).click();
  await dialog(page).getByLabel('Ends').focus();
  await page.keyboard.type('3112');
  await dialog(page).getByRole('button', { name: 'Save' }).click();
  await dialog(page).getByText('Must be a whole date and time').waitFor();
  assert.equal(fake.log.some(({ method }) => method === 'PATCH'), false);
});

screen('edits of an earlier state are shown beside what was saved meanwhile', { hash }, async ({ page, fake }) => {
  await page.getByRole('button', { name: 'Edit' }).click();
  await dialog(page).getByLabel('Title').fill('Mine');
  await page.keyboard.press('Escape');
  await dialog(page).waitFor({ state: 'detached' });
  Object.assign(stored(fake), { title: 'Theirs', revision: 2 });
  await page.reload();
  await page.getByRole('button', { name: 'Edit' }).click();
  await dialog(page).getByText('This link was changed meanwhile').waitFor();
  await dialog(page).getByRole('button', { name: 'Keep theirs' }).click();
  await dialog(page).getByRole('button', { name: 'Save', exact: true }).click();
  await dialog(page).waitFor({ state: 'detached' });
  assert.equal(stored(fake).title, 'Theirs');
});

screen('an edit whose answer was lost is no conflict', { hash }, async ({ page, fake }) => {
  fake.rule('PATCH', /links/, 'lose', 1);
  await page.getByRole('button', { name: 'Edit' }).click();
  await dialog(page).getByLabel('Title').fill('Saved once');
  await dialog(page).getByRole('button', { name: 'Save' }).click();
  await dialog(page).getByText('can’t be reached').waitFor();
  await dialog(page).getByRole('button', { name: 'Save' }).click();
  await dialog(page).waitFor({ state: 'detached' });
  await page.getByText('Saved once').waitFor();
});

screen('deliveries that are read again keep the pages behind the first', { hash: '#/links/autumn/webhooks', before: (fake) => Object.assign(fake.hooks.get('autumn')[0], { status: 'pending' }) }, async ({ page, fake }) => {
  const rows = page.locator('.deliveries tbody tr');
  await page.getByRole('button', { name: 'Show more' }).click();
  await is(() => rows.count(), 30);
  const asked = () => fake.log.filter(({ path }) => path.endsWith('/webhooks/status')).length;
  const before = asked();
  fake.hooks.get('autumn').unshift({ ...fake.hooks.get('autumn')[1], hit_id: '00000000-0000-4000-8000-00000000beef', created_at: new Date().toISOString() });
  await until(() => asked() > before, 'they are read again');
  assert.equal(fake.log.filter(({ path }) => path.endsWith('/webhooks/status')).at(-1).query.limit, '30');
  await is(() => rows.count(), 30);
  // A row of the second page is as it is now.
  Object.assign(fake.hooks.get('autumn')[28], { status: 'failed', error: 'http 503' });
  await page.getByText('http 503').waitFor();
});

screen('a replay that is closed ends with the call that is under way', { hash: '#/links/autumn/webhooks' }, async ({ page, fake }) => {
  let release;
  const released = new Promise((done) => (release = done));
  fake.rule('POST', /replay/, () => released.then(() => ({ status: 202, headers: {}, body: { queued: 1000, next_cursor: 'c2' } })));
  await page.getByRole('button', { name: 'Replay…' }).click();
  await dialog(page).getByRole('button', { name: 'Replay' }).click();
  await dialog(page).getByText('Queueing…').waitFor();
  await dialog(page).getByRole('button', { name: 'Cancel' }).click();
  await dialog(page).waitFor({ state: 'detached' });
  release();
  await page.getByText('Stopped: ').waitFor();
  assert.equal(fake.log.filter(({ path }) => path.endsWith('replay')).length, 1);
});

screen('bars of another range are read again where the stream has missed clicks', { hash, before: (fake) => fake.rule('GET', /stream/, problem(429, 'Too many streams.', { headers: { 'retry-after': '60' } })) }, async ({ page, fake }) => {
  await page.getByRole('navigation', { name: 'Range' }).getByRole('link', { name: '90 days' }).click();
  await page.getByRole('slider', { name: 'Clicks per day' }).waitFor();
  const asked = () => fake.log.filter(({ path }) => path.endsWith('/series')).length;
  const [before, told] = [asked(), await page.getByRole('slider').getAttribute('aria-valuetext')];
  fake.hit('autumn');
  await until(() => asked() > before, 'they are read again');
  // The fake tells the same of the last day, so that what the summary has grown by is in it already.
  await is(() => page.getByRole('slider').getAttribute('aria-valuetext'), told);
});

screen('a draft that is newer than the screen behind it is no conflict', { hash }, async ({ page, fake }) => {
  await page.getByRole('button', { name: 'Edit' }).click();
  await dialog(page).getByLabel('Title').fill('Mine');
  Object.assign(stored(fake), { notes: 'their notes', revision: 2 });
  await dialog(page).getByRole('button', { name: 'Save' }).click();
  await dialog(page).getByText('This link was changed meanwhile').waitFor();
  await dialog(page).getByRole('button', { name: 'Continue editing' }).click();
  await page.keyboard.press('Escape');
  await dialog(page).waitFor({ state: 'detached' });
  await page.getByText('their notes').waitFor();
  await page.getByRole('button', { name: 'Edit' }).click();
  await is(() => dialog(page).getByLabel('Title').inputValue(), 'Mine');
  assert.equal(await dialog(page).getByText('This link was changed meanwhile').count(), 0);
  await dialog(page).getByRole('button', { name: 'Save' }).click();
  await dialog(page).waitFor({ state: 'detached' });
  assert.deepEqual([stored(fake).title, stored(fake).notes], ['Mine', 'their notes']);
});
