import { assert, is, screen, until } from './common.mjs';
import { limited } from './fake.mjs';

const hash = '#/bulk';
const sent = (fake) => fake.log.filter(({ path }) => path === '/shorten/bulk');

screen('a pasted list becomes links, with names and titles', { hash }, async ({ page, fake }) => {
  await page.getByLabel('Addresses').fill('https://example.com/a,b\n\nhttps://example.com/b sale-b The B sale\n');
  await page.getByRole('button', { name: 'Make 2 links' }).click();
  await page.getByText('Finished. All links are made.').waitFor();
  assert.deepEqual(JSON.parse(sent(fake)[0].body).links, [{ redirect_url: 'https://example.com/a,b' }, { redirect_url: 'https://example.com/b', slug: 'sale-b', title: 'The B sale' }]);
  await page.getByRole('button', { name: 'New list' }).click();
  await is(() => page.getByLabel('Addresses').inputValue(), '');
});

screen('a CSV file becomes links, and refused rows are named and put back', { hash }, async ({ page, fake }) => {
  const csv = 'Target;slug;title;tags;data;colour\r\nhttps://example.com/a;one;"A ""b""\nc";x,y;"{""n"":1.0}";red\r\nftp://b;two;;;;\r\nhttps://example.com/c;autumn;;;;\r\n;three;;;;\r\n';
  await page.locator('input[type=file]').setInputFiles({ name: 'links.csv', mimeType: 'text/csv', buffer: Buffer.from(csv) });
  await page.getByText('Columns that are not used: colour').waitFor();
  await page.getByRole('button', { name: 'Make 4 links' }).click();
  await page.getByText('1 of 4 made').waitFor();
  await page.getByText('redirect_url must be an absolute').waitFor();
  await page.getByText('This name is taken.').waitFor();
  await page.getByText('no target').waitFor();
  assert.match(sent(fake)[0].body, /"title":"A \\"b\\"\\nc","tags":\["x","y"\],"data":\{"n":1\.0\}/);
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Results as CSV' }).click()]);
  const { readFile } = await import('node:fs/promises');
  assert.match(await readFile(await download.path(), 'utf8'), /^line,result,short_url,redirect_url,reason\r\n2,made,http/);
  // What was made is not sent again after a reload.
  await until(() => page.evaluate(() => sessionStorage.getItem('signpost.drafts')?.includes('/a;one') === false), 'the draft is what was not made');
  await page.getByRole('button', { name: 'Put refused rows back' }).click();
  await is(() => page.getByLabel('Addresses').inputValue(), 'Target;slug;title;tags;data;colour\nftp://b;two;;;;\nhttps://example.com/c;autumn;;;;\n;three;;;;');
});

const list = (count) => Array.from({ length: count }, (_, i) => `https://example.com/${i}`).join('\n');

screen('1,200 rows go in three calls, and the rate limit is waited for', { hash, before: (fake) => { fake.rule('POST', /bulk/, () => undefined, 1); fake.rule('POST', /bulk/, limited(2), 1); } }, async ({ page, fake }) => {
  await page.getByLabel('Addresses').fill(list(1200));
  await page.getByRole('button', { name: 'Make 1,200 links' }).click();
  await page.getByText('500 of 1,200 made').waitFor();
  await page.getByText('Sending continues automatically').waitFor();
  await page.getByRole('link', { name: 'Keys & usage' }).click();
  await page.getByRole('link', { name: 'Bulk' }).click();
  await page.getByText('1,200 of 1,200 made').waitFor();
  assert.equal(sent(fake).length, 4);
  assert.equal(sent(fake)[1].headers['idempotency-key'], sent(fake)[2].headers['idempotency-key']);
});

screen('a call whose answer is lost goes on and makes no link twice', { hash, fill: false, before: (fake) => fake.rule('POST', /bulk/, 'lose', 1) }, async ({ page, fake }) => {
  await page.getByLabel('Addresses').fill(list(20));
  await page.getByRole('button', { name: 'Make 20 links' }).click();
  await page.getByText('Going on makes no link twice').waitFor();
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.getByText('20 of 20 made').waitFor();
  assert.equal(fake.links.length, 20);
});

screen('rows behind a quota that is used up are refused, and no further call is made', { hash, before: (fake) => Object.assign(fake, { limit: 30, created: 0 }) }, async ({ page, fake }) => {
  await page.getByLabel('Addresses').fill(list(600));
  await page.getByRole('button', { name: 'Make 600 links' }).click();
  await page.getByText('30 of 600 made').waitFor();
  await page.getByText('570 rows refused').waitFor();
  assert.equal(sent(fake).length, 1);
  await page.getByText('And 370 more').waitFor();
});

screen('a list that was typed outlives other screens and a reload', { hash }, async ({ page }) => {
  await page.getByLabel('Addresses').fill('https://example.com/kept');
  await page.getByRole('link', { name: 'Links', exact: true }).click();
  await page.getByRole('link', { name: 'Many links at once' }).click();
  await is(() => page.getByLabel('Addresses').inputValue(), 'https://example.com/kept');
  await until(() => page.evaluate(() => sessionStorage.getItem('signpost.drafts')?.includes('kept')), 'the draft is stored');
  await page.reload();
  await is(() => page.getByLabel('Addresses').inputValue(), 'https://example.com/kept');
});

screen('a run is stopped after the call that is under way, and its rows are put back', { hash }, async ({ page, fake }) => {
  const release = fake.hold('POST', /bulk/);
  await page.getByLabel('Addresses').fill(list(700));
  await page.getByRole('button', { name: 'Make 700 links' }).click();
  await page.getByText('Sending…').waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  release();
  await page.getByText('500 of 700 made').waitFor();
  await page.getByText('200 rows refused').waitFor();
  await page.getByRole('button', { name: 'Put refused rows back' }).click();
  await page.getByRole('button', { name: 'Make 200 links' }).waitFor();
  assert.equal(sent(fake).length, 1);
});

screen('a row that no call can take is refused before it is sent', { hash, fill: false }, async ({ page, fake }) => {
  await page.getByLabel('Addresses').fill(`url,notes\nhttps://example.com/a,${'x'.repeat(300_000)}\nhttps://example.com/b,y`);
  await page.getByRole('button', { name: 'Make 2 links' }).click();
  await page.getByText('1 of 2 made').waitFor();
  await page.getByRole('cell', { name: 'too long' }).waitFor();
  assert.equal(fake.links.length, 1);
});

screen('a file that takes the place of what was typed gives it back', { hash }, async ({ page }) => {
  await page.getByLabel('Addresses').fill('https://example.com/typed');
  await page.locator('input[type=file]').setInputFiles({ name: 'links.csv', mimeType: 'text/csv', buffer: Buffer.from('url\nhttps://example.com/a\n') });
  await page.getByRole('button', { name: 'Put that back' }).click();
  await is(() => page.getByLabel('Addresses').inputValue(), 'https://example.com/typed');
});

screen('a new list begins empty, also after rows were refused', { hash }, async ({ page }) => {
  await page.getByLabel('Addresses').fill('https://example.com/a\nftp://b');
  await page.getByRole('button', { name: 'Make 2 links' }).click();
  await page.getByText('1 row refused').waitFor();
  await page.getByRole('button', { name: 'New list' }).click();
  await is(() => page.getByLabel('Addresses').inputValue(), '');
});

screen('rows whose answer was lost are neither made nor put back once it is stopped', { hash, fill: false, before: (fake) => fake.rule('POST', /bulk/, 'lose', 1) }, async ({ page, fake }) => {
  await page.getByLabel('Addresses').fill(list(520));
  await page.getByRole('button', { name: 'Make 520 links' }).click();
  await page.getByText('Going on makes no link twice').waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByText('520 rows refused, or not known to be made').waitFor();
  await page.getByText('sent without an answer').first().waitFor();
  await page.getByRole('button', { name: 'Put refused rows back' }).click();
  await page.getByRole('button', { name: 'Make 20 links' }).waitFor();
  assert.equal(fake.links.length, 500);
});
