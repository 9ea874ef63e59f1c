// Each screen and its main states: what axe finds, and whether anything is wider than the window.
import { assert, axe, dialog, open, overflow, test, theServer } from './common.mjs';
import { problem } from './fake.mjs';

const autumn = '#/links/autumn';
/** @type {Record<string, {hash?: string, signedOut?: boolean, before?: (fake: any) => void, act?: (page: any) => Promise<unknown>, ready: string | RegExp}>} */
const VIEWS = {
  'sign-in': { signedOut: true, ready: 'Sign in to Signpost' },
  'sign-in refused': { signedOut: true, act: (page) => page.keyboard.press('Enter'), ready: 'Paste a key first' },
  links: { ready: 'shop.example.com/summer' },
  'links, options open': { act: async (page) => { await page.getByText('Own name, title').click(); for (const group of await page.locator('.groups summary').all()) await group.click(); }, ready: '0: each visit is counted' },
  'links, filters open': { act: (page) => page.getByRole('button', { name: 'Filters' }).click(), ready: 'Made from' },
  'links, made': { act: async (page) => { await page.getByLabel('Shorten a link').fill(`https://example.com/${'long'.repeat(40)}`); await page.keyboard.press('Enter'); }, ready: 'Your link is ready' },
  'links, menu': { act: (page) => page.getByRole('button', { name: 'Actions for autumn' }).click(), ready: 'Delete…' },
  'links, empty': { before: (fake) => (fake.links = []), ready: 'No links yet' },
  'links, refused': { before: (fake) => fake.rule('GET', /links$/, problem(503, 'The store is out of reach.', { headers: { 'retry-after': '30' } })), ready: 'It goes on in' },
  account: { act: (page) => page.getByRole('button', { name: /Signed in with/ }).click(), ready: 'Sign out' },
  link: { hash: autumn, ready: 'news.ycombinator.com' },
  'link, a year as a table': { hash: `${autumn}?range=365`, act: (page) => page.getByText('Show as a table').click(), ready: 'Week (UTC)' },
  'link, edit': { hash: autumn, act: async (page) => { await page.getByRole('button', { name: 'Edit' }).click(); for (const group of await page.locator('.groups summary').all()) await group.click(); }, ready: 'For people. At most' },
  'link, delete': { hash: autumn, act: async (page) => { await page.getByRole('button', { name: 'More actions' }).click(); await page.getByRole('button', { name: 'Delete…' }).click(); }, ready: 'This can’t be undone' },
  'link, conflict': {
    hash: autumn, ready: 'This link was changed meanwhile',
    before: (fake) => fake.rule('PATCH', /links/, () => { Object.assign(fake.links.find(({ short_id }) => short_id === 'autumn'), { title: 'Theirs', revision: 9 }); return problem(412, 'Changed.'); }),
    act: async (page) => { await page.getByRole('button', { name: 'Edit' }).click(); await dialog(page).getByLabel('Title').fill('Mine'); await dialog(page).getByRole('button', { name: 'Save' }).click(); },
  },
  'link, missing': { hash: '#/links/zzzzzzz', ready: 'There is no such link' },
  webhooks: { hash: `${autumn}/webhooks`, act: (page) => page.getByRole('button', { name: 'Test all' }).click(), ready: 'answered 204' },
  keys: { hash: '#/keys', ready: 'old deploy script' },
  'keys, new': { hash: '#/keys', act: (page) => page.getByRole('button', { name: 'New key' }).click(), ready: 'For people: who or what' },
  'keys, secret': { hash: '#/keys', act: async (page) => { await page.getByRole('button', { name: 'New key' }).click(); await dialog(page).getByLabel('Name').fill('x'); await page.keyboard.press('Enter'); }, ready: 'shown only once' },
  bulk: { hash: '#/bulk', ready: 'No rows yet' },
  'bulk, refused rows': { hash: '#/bulk', act: async (page) => { await page.getByLabel('Addresses').fill(`ftp://${'x'.repeat(200)}\nhttps://example.com/`); await page.getByRole('button', { name: 'Make 2 links' }).click(); }, ready: '1 row refused' },
  'session ended': { before: (fake) => fake.rule('GET', /links$/, problem(401, 'No.')), ready: 'Your session has ended' },
};

const SIZES = [['light', 1280], ['dark', 1280], ['light', 390], ['dark', 390], ['light', 320], ['dark', 320]];

for (const [name, view] of Object.entries(VIEWS)) {
  test(`axe finds nothing and nothing is cut, both themes, 1280, 390 and 320 px: ${name}`, { timeout: 120_000 }, async () => {
    const { base, fake } = await theServer();
    const found = [];
    for (const [theme, width] of SIZES) {
      fake.reset();
      fake.fill();
      view.before?.(fake);
      const { page, context, bad } = await open({ base, key: view.signedOut ? undefined : fake.secret, hash: view.hash ?? '#/links', width, theme });
      try {
        if (view.act) {
          await page.getByRole('main').first().waitFor();
          await view.act(page);
        }
        await page.getByText(view.ready).locator('visible=true').first().waitFor();
        if (process.env.CONSOLE_LOOKS) await page.screenshot({ path: `${process.env.CONSOLE_LOOKS}/${name.replace(/\W+/g, '-')}-${theme}-${width}.png`, fullPage: true });
        found.push(...[...(await axe(page)), ...bad].map((one) => `${theme} ${width}: ${one}`));
        const wide = await overflow(page);
        if (wide > 0) found.push(`${theme} ${width}: ${wide} px too wide`);
      } finally {
        await context.close();
      }
    }
    assert.deepEqual(found, []);
  });
}
