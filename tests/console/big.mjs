// The console with a running server: a key with at least fifty links, a link with hits. `CONSOLE_API` is its address,
// `CONSOLE_ROOT_KEY` the key, `CONSOLE_LINK` the link.
import { PROGRAM as base, acting, assertOwnTime, open, test } from './common.mjs';

const { CONSOLE_ROOT_KEY: key, CONSOLE_LINK: link } = process.env;

test('every screen takes less than 200 ms of its own', { timeout: 60_000 }, async () => {
  const seen = await open({ base, key });
  const { page, context } = seen;
  const more = () => page.getByRole('button', { name: 'Show more' }).click().then(() => page.locator('.row').nth(49).waitFor());
  const asTable = () => page.getByText('Show as a table').click();
  await acting('big', seen, () =>
    assertOwnTime(page, context, base, [
      ['#/links', () => page.locator('.row').nth(24).waitFor(), more],
      [`#/links/${link}`, () => page.getByRole('slider').waitFor(), asTable],
      [`#/links/${link}?range=all`, () => page.getByRole('slider').waitFor(), asTable],
      ['#/clicks?range=all', () => page.getByRole('slider').waitFor(), asTable],
      ['#/keys', () => page.getByRole('button', { name: 'New key' }).waitFor(), () => page.getByRole('button', { name: 'New key' }).click()],
    ]));
});
