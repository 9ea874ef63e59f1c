import { assert, dialog, is, screen, until } from './common.mjs';
import { problem } from './fake.mjs';

const hash = '#/keys';

screen('usage is shown against the quotas', { hash, before: (fake) => Object.assign(fake, { limit: 100, created: 100 }) }, async ({ page }) => {
  await page.getByRole('meter', { name: 'Links made' }).waitFor();
  await is(() => page.getByRole('meter', { name: 'Links made' }).getAttribute('aria-valuetext'), '100 of 100');
  await page.getByText('No more until then').waitFor();
  await page.getByText('38 left').waitFor();
});

screen('a new key’s secret is shown once, and stays until it is confirmed', { hash }, async ({ page, fake }) => {
  await page.getByRole('button', { name: 'New key' }).click();
  await dialog(page).getByLabel('Name').fill('partner');
  await dialog(page).getByLabel('Make and revoke keys').check();
  await dialog(page).getByLabel('Make and change links').uncheck();
  await dialog(page).getByLabel('Expires').selectOption('30');
  await dialog(page).getByRole('button', { name: 'Make key' }).click();
  await page.getByText('shown only once').waitFor();
  const { secret, scopes, expires_at } = fake.keys[0];
  await page.getByText(secret).waitFor();
  assert.equal(scopes.includes('links:write'), false);
  assert.ok(Date.parse(expires_at) > Date.now() + 29 * 86_400_000);
  await page.getByRole('link', { name: 'Bulk' }).click();
  await page.getByLabel('Addresses').fill('https://example.com/a-draft');
  await until(() => page.evaluate(() => sessionStorage.getItem('signpost.drafts')?.includes('a-draft')), 'drafts are stored');
  await page.getByRole('link', { name: 'Keys & usage' }).click();
  await page.getByText(secret).waitFor();
  assert.equal(await page.evaluate((text) => JSON.stringify({ ...sessionStorage, ...localStorage }).includes(text), secret), false);
  await page.getByRole('button', { name: 'I have copied it' }).click();
  assert.equal(await page.getByText(secret).count(), 0);
});

screen('a key whose answer is lost is made once, and its secret is said to be lost', { hash }, async ({ page, fake }) => {
  fake.rule('POST', /api-keys$/, 'lose', 1);
  await page.getByRole('button', { name: 'New key' }).click();
  await dialog(page).getByLabel('Name').fill('partner');
  await dialog(page).getByLabel('Expires').selectOption('30');
  await dialog(page).getByRole('button', { name: 'Make key' }).click();
  await dialog(page).getByText('can’t be reached').waitFor();
  await dialog(page).getByRole('button', { name: 'Make key' }).click();
  await page.getByText('was lost on the way').waitFor();
  assert.equal(fake.keys.filter(({ name }) => name === 'partner').length, 1);
});

screen('a refusal of a new key stands in the dialog, with what was typed', { hash }, async ({ page, fake }) => {
  fake.rule('POST', /api-keys$/, problem(422, 'The request has faults.', { errors: [{ pointer: '/name', detail: 'must not be blank' }] }), 1);
  fake.rule('POST', /api-keys$/, problem(403, 'This key has as many keys as its tier allows.', { slug: 'key-quota-exceeded', limit: 10, current: 10 }), 1);
  await page.getByRole('button', { name: 'New key' }).click();
  await dialog(page).getByLabel('Name').fill('partner');
  await dialog(page).getByRole('button', { name: 'Make key' }).click();
  await dialog(page).getByText('Must not be blank').waitFor();
  await until(() => page.evaluate(() => document.activeElement?.value === 'partner'), 'the focus is at the fault');
  await dialog(page).getByRole('button', { name: 'Make key' }).click();
  await dialog(page).getByText('as many keys as its tier allows').waitFor();
  assert.equal(await dialog(page).getByLabel('Name').inputValue(), 'partner');
});

screen('a key that rotates itself stays signed in with its new secret', { hash }, async ({ page, fake }) => {
  await page.getByRole('button', { name: 'Actions for web shop' }).click();
  await page.getByRole('button', { name: 'Rotate…' }).click();
  await dialog(page).getByLabel('Also replace the webhook secret').check();
  await dialog(page).getByRole('button', { name: 'Rotate' }).click();
  await page.getByText('whsec_ROTATED').waitFor();
  await page.getByRole('link', { name: 'Links', exact: true }).click();
  await page.locator('.row').first().waitFor();
  assert.equal(fake.log.at(-1).headers['x-api-key'], `sp_${'R'.repeat(43)}`);
  fake.keys[0].secret = fake.secret;
});

screen('a key is changed and revoked', { hash }, async ({ page, fake }) => {
  await page.getByRole('button', { name: 'Actions for newsletter' }).click();
  await page.getByRole('button', { name: 'Change…' }).click();
  await dialog(page).getByLabel('Name').fill('letters');
  await dialog(page).getByLabel('See usage').check();
  await dialog(page).getByRole('button', { name: 'Save' }).click();
  await page.getByRole('rowheader', { name: /letters/ }).waitFor();
  const sent = JSON.parse(fake.log.find(({ method }) => method === 'PATCH').body);
  assert.deepEqual(Object.keys(sent), ['name', 'scopes']);
  await page.getByRole('button', { name: 'Actions for letters' }).click();
  await page.getByRole('button', { name: 'Revoke…' }).click();
  await dialog(page).getByRole('button', { name: 'Revoke' }).click();
  await page.getByRole('rowheader', { name: /letters/ }).waitFor({ state: 'detached' });
  await until(() => fake.keys.length === 2, 'the key is gone');
});

screen('an expired key is marked', { hash }, async ({ page }) => {
  await page.getByRole('row', { name: /old deploy script/ }).getByText('expired').waitFor();
});

screen('a date that is missing is a fault, and no key without an end', { hash }, async ({ page, fake }) => {
  const count = fake.keys.length;
  await page.getByRole('button', { name: 'New key' }).click();
  await dialog(page).getByLabel('Name').fill('partner');
  await dialog(page).getByLabel('Expires').selectOption('date');
  await dialog(page).getByRole('button', { name: 'Make key' }).click();
  await dialog(page).getByText('Must be a date and a time').waitFor();
  assert.equal(await dialog(page).getByRole('alert').count(), 0);
  await dialog(page).getByLabel('Date and time').focus();
  await page.keyboard.type('3112');
  await dialog(page).getByRole('button', { name: 'Make key' }).click();
  await dialog(page).getByText('Must be a whole date and time').waitFor();
  assert.equal(fake.keys.length, count);
});

screen('a change of a key that was cancelled is forgotten', { hash }, async ({ page }) => {
  const change = async () => {
    await page.getByRole('button', { name: 'Actions for newsletter' }).click();
    await page.getByRole('button', { name: 'Change…' }).click();
  };
  await change();
  await dialog(page).getByLabel('Make and revoke keys').check();
  await dialog(page).getByRole('button', { name: 'Cancel' }).click();
  await dialog(page).waitFor({ state: 'detached' });
  await change();
  await is(() => dialog(page).getByLabel('Make and revoke keys').isChecked(), false);
});

screen('an answer that comes after the sign-out signs nobody in', { hash }, async ({ page, fake }) => {
  const release = fake.hold('POST', /rotate/);
  await page.getByRole('button', { name: 'Actions for web shop' }).click();
  await page.getByRole('button', { name: 'Rotate…' }).click();
  await dialog(page).getByRole('button', { name: 'Rotate' }).click();
  await dialog(page).getByText('Rotating…').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: /^Signed in with the key/ }).click();
  await page.getByRole('button', { name: 'Sign out' }).click();
  const answered = page.waitForResponse(/rotate/);
  release();
  await answered;
  // Whatever follows from the answer is done by then.
  await page.evaluate(() => new Promise((done) => setTimeout(done, 300)));
  await page.getByRole('heading', { name: 'Sign in to Signpost' }).waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.getItem('signpost.key')), null);
  fake.keys[0].secret = fake.secret;
});

screen('a key that was revoked is not answered for a new one', { hash }, async ({ page, fake }) => {
  fake.rule('POST', /api-keys$/, 'lose', 1);
  await page.getByRole('button', { name: 'New key' }).click();
  await dialog(page).getByLabel('Name').fill('partner');
  await dialog(page).getByRole('button', { name: 'Make key' }).click();
  await dialog(page).getByText('can’t be reached').waitFor();
  await dialog(page).getByRole('button', { name: 'Cancel' }).click();
  await page.reload();
  await page.getByRole('button', { name: 'Actions for partner' }).click();
  await page.getByRole('button', { name: 'Revoke…' }).click();
  await dialog(page).getByRole('button', { name: 'Revoke' }).click();
  await page.getByRole('rowheader', { name: /partner/ }).waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'New key' }).click();
  await dialog(page).getByRole('button', { name: 'Make key' }).click();
  await page.getByText('shown only once').waitFor();
  assert.equal(await page.getByText('was lost on the way').count(), 0);
});
