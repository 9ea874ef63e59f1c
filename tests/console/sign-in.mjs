import { assert, dialog, is, screen, until } from './common.mjs';
import { limited, problem } from './fake.mjs';

const stored = (page) => page.evaluate(() => ({ session: Object.keys(sessionStorage).filter((name) => name.startsWith('signpost')).sort(), local: Object.keys(localStorage) }));

screen('a key that is refused stays typed, and the reason is told', { signedOut: true }, async ({ page }) => {
  await page.getByLabel('API key', { exact: true }).fill('sp_wrong');
  await page.keyboard.press('Enter');
  await page.getByText('This key is not accepted').waitFor();
  assert.equal(await page.getByLabel('API key', { exact: true }).inputValue(), 'sp_wrong');
  assert.deepEqual((await stored(page)).session, []);
});

screen('a key signs in, a reload does not ask again, and signing out forgets it', { signedOut: true }, async ({ page, fake }) => {
  await page.getByLabel('API key', { exact: true }).fill(` ${fake.secret} `);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('link', { name: /autumn$/ }).first().waitFor();
  await is(() => stored(page), { session: ['signpost.key', 'signpost.self'], local: [] });
  await page.reload();
  await page.getByRole('link', { name: /autumn$/ }).first().waitFor();
  await page.getByRole('button', { name: /Signed in with the key web shop/ }).click();
  await page.getByRole('button', { name: 'Dark' }).click();
  await is(async () => (await stored(page)).local, ['signpost.theme']);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'Sign in to Signpost' }).waitFor();
  assert.deepEqual((await stored(page)).session, []);
  assert.equal(await page.evaluate(() => document.body.innerHTML.includes('sp_F')), false);
});

screen('an unreachable service and the limit of attempts are told at the sign-in', { signedOut: true }, async ({ page, fake }) => {
  fake.rule('GET', /self/, 'drop', 1);
  fake.rule('GET', /self/, limited(2), 1);
  await page.getByLabel('API key', { exact: true }).fill(fake.secret);
  await page.keyboard.press('Enter');
  await page.getByText('Check the connection').waitFor();
  await page.keyboard.press('Enter');
  await page.getByText('Too many attempts from this address').waitFor();
  await page.getByRole('button', { name: /Again in \d s/ }).waitFor();
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Links', exact: true }).waitFor({ state: 'attached' });
});

screen('a session that ends asks for a key above what was typed, and goes on', {}, async ({ page, fake }) => {
  await page.getByRole('button', { name: 'Actions for autumn' }).click();
  await page.getByRole('button', { name: 'Edit…' }).click();
  await dialog(page).getByLabel('Leads to', { exact: true }).fill('https://example.com/after');
  fake.rule('PATCH', /links/, problem(401, 'The API key is missing, unknown, expired or revoked.'), 1);
  await dialog(page).getByRole('button', { name: 'Save' }).click();
  await page.getByRole('heading', { name: 'Your session has ended' }).waitFor();
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  await page.getByRole('heading', { name: 'Your session has ended' }).waitFor();
  await page.locator('dialog.again').getByLabel('API key', { exact: true }).fill(fake.secret);
  await page.keyboard.press('Enter');
  await page.locator('dialog.again').waitFor({ state: 'detached' });
  assert.equal(await dialog(page).getByLabel('Leads to', { exact: true }).inputValue(), 'https://example.com/after');
  await dialog(page).getByRole('button', { name: 'Save' }).click();
  await until(() => fake.links.some(({ redirect_url }) => redirect_url === 'https://example.com/after'), 'the edit is saved');
});

screen('a list whose session has ended loads by itself after the sign-in', {}, async ({ page, fake }) => {
  await page.locator('.row').first().waitFor();
  fake.rule('GET', /links$/, problem(401, 'No.'), 1);
  await page.getByRole('link', { name: 'Archived' }).click();
  await page.locator('dialog.again').getByLabel('API key', { exact: true }).fill(fake.secret);
  await page.keyboard.press('Enter');
  await page.getByRole('link', { name: /old4321$/ }).waitFor();
});

screen('what one key’s holder typed is not shown to the next', {}, async ({ page, fake }) => {
  const other = fake.key({ name: 'other', secret: `sp_${'G'.repeat(43)}` });
  fake.keys.push(other);
  await page.getByLabel('Shorten a link').fill('https://example.com/mine');
  await page.locator('.row').first().waitFor();
  fake.rule('GET', /links$/, problem(401, 'No.'), 1);
  await page.getByRole('link', { name: 'Archived' }).click();
  await page.locator('dialog.again').getByLabel('API key', { exact: true }).fill(other.secret);
  await page.keyboard.press('Enter');
  await page.locator('dialog.again').waitFor({ state: 'detached' });
  await page.getByRole('button', { name: /Signed in with the key other/ }).waitFor();
  assert.equal(await page.getByLabel('Shorten a link').inputValue(), '');
});

screen('a screen shows what the scopes of the key allow', { before: (fake) => (fake.keys[0].scopes = ['usage:read']) }, async ({ page }) => {
  await page.getByText('This key can’t list links').waitFor();
  assert.equal(await page.getByLabel('Shorten a link').count(), 0);
  await page.getByRole('link', { name: 'Keys & usage' }).click();
  await page.getByText('This key can’t manage other keys').waitFor();
  await page.getByRole('link', { name: 'Bulk' }).click();
  await page.getByText('This key can’t make links').waitFor();
});

screen('another key makes none of the links of the one before, and sees none of its secrets', { hash: '#/keys' }, async ({ page, fake }) => {
  const other = fake.key({ name: 'other', secret: `sp_${'G'.repeat(43)}` });
  await page.getByRole('button', { name: 'New key' }).click();
  await dialog(page).getByLabel('Name').fill('partner');
  await page.keyboard.press('Enter');
  await page.getByText('shown only once').waitFor();
  fake.keys.push(other);
  await page.getByRole('link', { name: 'Bulk' }).click();
  fake.rule('POST', /bulk/, problem(401, 'No.'), 1);
  await page.getByLabel('Addresses').fill('https://example.com/a');
  await page.getByRole('button', { name: 'Make 1 link' }).click();
  await page.locator('dialog.again').getByLabel('API key', { exact: true }).fill(other.secret);
  await page.keyboard.press('Enter');
  await page.getByText('No rows yet').waitFor();
  await page.getByRole('link', { name: 'Keys & usage' }).click();
  await page.getByRole('rowheader', { name: /partner/ }).waitFor();
  assert.equal(await page.getByText('shown only once').count(), 0);
  assert.equal(fake.log.filter(({ path }) => path === '/shorten/bulk').length, 1);
});
