import { assert, dialog, is, screen, until } from './common.mjs';
import { limited, problem } from './fake.mjs';

const row = (page, id) => page.getByRole('listitem').filter({ has: page.getByRole('link', { name: new RegExp(`${id}$`) }) });
const listed = (fake) => fake.log.filter(({ method, path }) => method === 'GET' && path === '/links');

screen('a list of 25 links takes one request, and goes on when asked', { before: (fake) => { for (let i = 0; i < 40; i += 1) fake.link({}); } }, async ({ page, fake }) => {
  await page.getByRole('button', { name: 'Show more' }).waitFor();
  await is(() => page.locator('.row').count(), 25);
  assert.deepEqual(fake.log.filter(({ path }) => path.startsWith('/links')).map(({ path, query }) => [path, query.include, query.limit]), [['/links', 'hits', '25']]);
  await page.getByRole('button', { name: 'Show more' }).click();
  await until(async () => (await page.locator('.row').count()) === 43, 'all links');
  await is(() => page.getByRole('button', { name: 'Show more' }).count(), 0);
});

screen('search and filters narrow the list and are part of the address', {}, async ({ page, fake }) => {
  await page.getByRole('searchbox').fill('autumn');
  await until(async () => (await page.locator('.row').count()) === 1, 'one link');
  assert.match(page.url(), /q=autumn/);
  await page.getByRole('searchbox').fill('zebra');
  await page.getByText('Nothing found').waitFor();
  await page.getByRole('searchbox').fill('');
  await page.getByRole('button', { name: 'Filters' }).click();
  await page.getByLabel('Order', { exact: true }).selectOption('oldest');
  await page.getByLabel('State', { exact: true }).selectOption('active');
  await page.getByLabel('Has', { exact: true }).selectOption('tag');
  await page.getByLabel('Text', { exact: true }).fill('mail');
  await page.getByRole('button', { name: 'Apply' }).click();
  await until(async () => (await page.locator('.row').count()) === 1, 'one link with the tag');
  const { query } = listed(fake).at(-1);
  assert.deepEqual([query.tag, query.order, query.state], ['mail', 'oldest', 'active']);
  await page.reload();
  await until(async () => (await page.locator('.row').count()) === 1, 'one link after a reload');
});

screen('archived links are listed apart, and an archived link comes back by undo', {}, async ({ page, fake }) => {
  await row(page, 'autumn').getByRole('button', { name: 'Actions for autumn' }).click();
  await page.getByRole('button', { name: 'Archive', exact: true }).click();
  await page.getByText('autumn is archived. It still redirects.').waitFor();
  await is(() => row(page, 'autumn').count(), 0);
  await page.getByRole('button', { name: 'Undo' }).click();
  await row(page, 'autumn').waitFor();
  assert.equal(fake.links.find(({ short_id }) => short_id === 'autumn').archived, false);
  await page.getByRole('link', { name: 'Archived' }).click();
  await row(page, 'old4321').waitFor();
});

screen('a link is deleted after a question, and a refusal keeps the question open', {}, async ({ page, fake }) => {
  fake.rule('DELETE', /links/, problem(503, 'The store is out of reach.', { headers: { 'retry-after': '1' } }), 1);
  await row(page, 'm1CoVi3').getByRole('button', { name: /^Actions/ }).click();
  await page.getByRole('button', { name: 'Delete…' }).click();
  await dialog(page).getByText('3 clicks are forgotten').waitFor();
  await dialog(page).getByRole('button', { name: 'Delete' }).click();
  await dialog(page).getByText('The store is out of reach.').waitFor();
  await dialog(page).getByRole('button', { name: 'Delete', exact: true }).click();
  await row(page, 'm1CoVi3').waitFor({ state: 'detached' });
  assert.equal(fake.links.some(({ short_id }) => short_id === 'm1CoVi3'), false);
});

screen('an empty list says how to begin', { fill: false }, async ({ page }) => {
  await page.getByText('No links yet').waitFor();
});

screen('a slow list says that it is still loading', { before: (fake) => fake.rule('GET', /links$/, 'hang') }, async ({ page }) => {
  await page.getByText('Loading', { exact: true }).first().waitFor({ state: 'attached' });
  await page.getByText('Still loading').waitFor();
});

screen('a failed list is tried again by hand', { before: (fake) => fake.rule('GET', /links$/, problem(500, 'Something broke.'), 1) }, async ({ page }) => {
  await page.getByText('Something broke.').waitFor();
  await page.getByText('rq-test').waitFor();
  await page.getByRole('button', { name: 'Try again' }).click();
  await row(page, 'autumn').waitFor();
});

screen('a rate limit says when it goes on, and it goes on by itself', { before: (fake) => fake.rule('GET', /links$/, limited(2), 1) }, async ({ page }) => {
  await page.getByText('Too many requests in a minute').waitFor();
  await page.getByText(/Retry in \d s/).waitFor();
  await row(page, 'autumn').waitFor();
});

screen('a list that was offline loads when the browser is online', {}, async ({ page, context }) => {
  await row(page, 'autumn').waitFor();
  await context.setOffline(true);
  await page.getByText('This device is offline').waitFor();
  await page.getByRole('link', { name: 'Archived' }).click();
  await page.getByText('can’t be reached').waitFor();
  await context.setOffline(false);
  await row(page, 'old4321').waitFor();
});

screen('an answer that is not of the service is named so', { before: (fake) => fake.rule('GET', /links$/, { status: 502, headers: { 'content-type': 'text/html' }, body: '<h1>Bad gateway</h1>' }, 1) }, async ({ page }) => {
  await page.getByText('This answer is not from Signpost').waitFor();
});

screen('a link is made with a name and options, with its QR code beside it', {}, async ({ page, fake }) => {
  await page.getByLabel('Shorten a link').fill('https://example.com/a');
  await page.getByText('Own name, title, expiry').click();
  await page.getByLabel('Own name').fill('my-name');
  await page.getByLabel('Title').fill('A title');
  await page.getByLabel('Tags').fill('one, two');
  await page.getByText('Time', { exact: true }).click();
  await page.getByLabel('Ends', { exact: true }).fill('2030-01-02T03:04');
  await page.getByText('Redirect', { exact: true }).click();
  await page.getByLabel('Status', { exact: true }).selectOption('301');
  await page.getByLabel('Browsers may keep it for (seconds)').fill('60');
  await page.getByText('Webhooks and data', { exact: true }).click();
  await page.getByLabel('Webhooks', { exact: true }).fill('https://hooks.example.com/a\n\nhttps://hooks.example.com/b\n');
  await page.getByLabel('Data', { exact: true }).fill('{"n": 1.0, "big": 12345678901234567890}');
  await page.getByRole('button', { name: 'Shorten' }).click();
  await page.getByText('Your link is ready').waitFor();
  await is(() => page.getByRole('img', { name: /QR code of/ }).evaluate((image) => image.decode().then(() => image.naturalWidth > 0)), true);
  const sent = fake.log.find(({ path }) => path === '/shorten');
  assert.match(sent.body, /"data":\{"n":1\.0,"big":12345678901234567890\}/);
  const { data: _, ...rest } = JSON.parse(sent.body);
  assert.deepEqual(rest, {
    redirect_url: 'https://example.com/a', slug: 'my-name', title: 'A title', tags: ['one', 'two'], expires_at: '2030-01-02T02:04:00.000Z', redirect_status: 301, cache_seconds: 60,
    webhooks: ['https://hooks.example.com/a', 'https://hooks.example.com/b'],
  });
  await is(() => page.getByLabel('Shorten a link').inputValue(), '');
  await row(page, 'my-name').first().waitFor();
  await page.getByRole('button', { name: 'Copy link' }).click();
  await is(() => page.evaluate(() => navigator.clipboard.readText()), /\/my-name$/);
});

screen('faults stand at their fields, and what was typed stays', {}, async ({ page, fake }) => {
  await page.getByLabel('Shorten a link').fill('example.com/no-scheme');
  await page.getByText('Own name, title, expiry').click();
  await page.getByText('Webhooks and data', { exact: true }).click();
  await page.getByLabel('Webhooks', { exact: true }).fill('https://hooks.example.com/a\nftp://x');
  await page.getByText('Webhooks and data', { exact: true }).click();
  await page.getByRole('button', { name: 'Shorten' }).click();
  await page.getByText('Must be an absolute http or https URL', { exact: true }).waitFor();
  await page.getByText('Line 2 must be an absolute').waitFor();
  await until(() => page.evaluate(() => document.activeElement?.type === 'url'), 'the focus is at the first fault');
  await page.getByLabel('Webhooks', { exact: true }).fill('');
  await page.getByLabel('Data', { exact: true }).fill('[1]');
  await page.getByLabel('Shorten a link').fill('https://example.com/');
  await page.getByRole('button', { name: 'Shorten' }).click();
  await page.getByText('Must be a JSON object').waitFor();
  await page.getByLabel('Data', { exact: true }).fill('');
  await page.getByLabel('Own name').fill('autumn');
  await page.getByRole('button', { name: 'Shorten' }).click();
  await page.getByText('This name is taken by another link').waitFor();
  // Where the options are closed, they open.
  await page.getByText('Own name, title, expiry').click();
  await page.getByRole('button', { name: 'Shorten' }).click();
  await page.getByText('This name is taken by another link').waitFor();
  await until(() => page.evaluate(() => document.activeElement?.value === 'autumn'), 'the focus is at the fault');
  assert.equal(await page.getByLabel('Shorten a link').inputValue(), 'https://example.com/');
  assert.equal(fake.created, 0);
});

screen('a quota that is used up is told with its numbers', { before: (fake) => Object.assign(fake, { limit: 100, created: 100 }) }, async ({ page }) => {
  await page.getByLabel('Shorten a link').fill('https://example.com/');
  await page.keyboard.press('Enter');
  await page.getByText('created 100 links of 100').waitFor();
  assert.equal(await page.getByLabel('Shorten a link').inputValue(), 'https://example.com/');
});

screen('a limited creation says when it can be sent again', { before: (fake) => fake.rule('POST', /shorten/, limited(2), 1) }, async ({ page }) => {
  await page.getByLabel('Shorten a link').fill('https://example.com/');
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: /Again in \d s/ }).waitFor();
  await page.getByRole('button', { name: 'Shorten' }).click();
  await page.getByText('Your link is ready').waitFor();
});

screen('a creation whose answer is lost makes one link', { fill: false, before: (fake) => fake.rule('POST', /shorten/, 'lose', 1) }, async ({ page, fake }) => {
  await page.getByLabel('Shorten a link').fill('https://example.com/');
  await page.keyboard.press('Enter');
  await page.getByText('can’t be reached').waitFor();
  await page.keyboard.press('Enter');
  await page.getByText('Your link is ready').waitFor();
  assert.equal(fake.links.length, 1);
});

screen('what is typed outlives other screens and a reload', {}, async ({ page }) => {
  await page.getByLabel('Shorten a link').fill('https://example.com/kept');
  await page.getByText('Own name, title, expiry').click();
  await page.getByLabel('Title').fill('kept too');
  await page.getByRole('link', { name: 'Keys & usage' }).click();
  await page.getByRole('heading', { name: 'Keys', exact: true }).waitFor();
  await page.getByRole('link', { name: 'Links', exact: true }).click();
  await is(() => page.getByLabel('Shorten a link').inputValue(), 'https://example.com/kept');
  await page.reload();
  await is(() => page.getByLabel('Shorten a link').inputValue(), 'https://example.com/kept');
  await is(() => page.getByLabel('Title').inputValue(), 'kept too');
});

screen('what is typed while a link is made stays', {}, async ({ page, fake }) => {
  const release = fake.hold('POST', /shorten$/);
  await page.getByLabel('Shorten a link').fill('https://example.com/first');
  await page.keyboard.press('Enter');
  await page.getByText('Shortening…').waitFor();
  await page.getByLabel('Shorten a link').fill('https://example.com/second');
  release();
  await page.getByText('Your link is ready').waitFor();
  assert.equal(await page.getByLabel('Shorten a link').inputValue(), 'https://example.com/second');
  assert.equal(fake.links[0].redirect_url, 'https://example.com/first');
});

screen('the focus is not lost with the button at the end of a list', { before: (fake) => { for (let i = 0; i < 40; i += 1) fake.link({}); } }, async ({ page }) => {
  await page.getByRole('button', { name: 'Show more' }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Show more' }).waitFor({ state: 'detached' });
  await is(() => page.evaluate(() => document.activeElement.id), 'list-title');
});

screen('a creation whose answer is lost makes one link, also after another screen and a reload', { fill: false, before: (fake) => fake.rule('POST', /shorten/, 'lose', 1) }, async ({ page, fake }) => {
  await page.getByLabel('Shorten a link').fill('https://example.com/');
  await page.keyboard.press('Enter');
  await page.getByText('can’t be reached').waitFor();
  await page.getByRole('link', { name: 'Keys & usage' }).click();
  await page.getByRole('heading', { name: 'Keys', exact: true }).waitFor();
  await page.getByRole('link', { name: 'Links', exact: true }).click();
  await page.reload();
  await is(() => page.getByLabel('Shorten a link').inputValue(), 'https://example.com/');
  await page.getByRole('button', { name: 'Shorten', exact: true }).click();
  await page.getByText('Your link is ready').waitFor();
  assert.equal(fake.links.length, 1);
});

screen('a page that is read keeps what was changed meanwhile', { before: (fake) => { for (let i = 0; i < 40; i += 1) fake.link({}); } }, async ({ page, fake }) => {
  await is(() => page.locator('.row').count(), 25);
  const release = fake.hold('GET', /links$/);
  await page.getByRole('button', { name: 'Show more' }).click();
  await page.getByRole('button', { name: 'Actions for autumn' }).click();
  await page.getByRole('button', { name: 'Delete…' }).click();
  await dialog(page).getByRole('button', { name: 'Delete' }).click();
  await is(() => page.locator('.row').count(), 24);
  release();
  await until(async () => (await page.locator('.row').count()) > 24, 'the next page');
  assert.equal(await page.getByRole('button', { name: 'Actions for autumn' }).count(), 0);
});

screen('a filter that a tag of a row sets is shown among the filters', {}, async ({ page }) => {
  await page.getByRole('button', { name: 'Filters' }).click();
  await page.getByRole('link', { name: 'mail', exact: true }).click();
  await is(() => page.getByLabel('Text').inputValue(), 'mail');
});
