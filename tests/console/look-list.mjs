// The sign-in, the list of links and what is there on every screen, as they look.
import { limited, problem } from './fake.mjs';
import { look, openGroups } from './look.mjs';

look({
  'sign-in': { signedOut: true, ready: 'Sign in to Signpost' },
  'sign-in refused': { signedOut: true, act: (page) => page.keyboard.press('Enter'), ready: 'Paste a key first' },
  links: { ready: 'shop.example.com/summer' },
  'links, options open': { act: async (page) => { await page.getByText('Own name, title').click(); await openGroups(page); }, ready: '0: each visit is counted' },
  'links, filters open': { act: (page) => page.getByRole('button', { name: 'Filters' }).click(), ready: 'Made from' },
  'links, made': { act: async (page) => { await page.getByLabel('Shorten a link').fill(`https://example.com/${'long'.repeat(40)}`); await page.keyboard.press('Enter'); }, ready: 'Your link is ready' },
  'links, menu': { act: (page) => page.getByRole('button', { name: 'Actions for autumn' }).click(), ready: 'Delete…' },
  'links, empty': { before: (fake) => (fake.links = []), ready: 'No links yet' },
  'links, refused': { before: (fake) => fake.rule('GET', /links$/, problem(503, 'The store is out of reach.', { headers: { 'retry-after': '30' } })), ready: 'Retry in' },
  'links, loading': { before: (fake) => fake.rule('GET', /links$/, 'hang'), ready: 'Still loading' },
  'links, rate limited': { before: (fake) => fake.rule('GET', /links$/, limited(40)), ready: 'Too many requests in a minute' },
  'links, offline': { act: async (page, { context }) => { await page.locator('.row').first().waitFor(); await context.setOffline(true); await page.getByRole('link', { name: 'Archived' }).click(); }, ready: 'can’t be reached' },
  'links, quota used up': { before: (fake) => Object.assign(fake, { limit: 100, created: 100 }), act: async (page) => { await page.getByLabel('Shorten a link').fill('https://example.com/'); await page.keyboard.press('Enter'); }, ready: 'created 100 links of 100' },
  'links, faults': { act: async (page) => { await page.getByText('Own name, title').click(); await page.getByLabel('Own name').fill('a b'); await page.keyboard.press('Enter'); }, ready: 'Must have only letters' },
  'links, nothing found': { hash: '#/links?q=zebra', ready: 'Nothing found' },
  'links, archived by hand': { act: async (page) => { await page.getByRole('button', { name: 'Actions for autumn' }).click(); await page.getByRole('button', { name: 'Archive', exact: true }).click(); }, ready: 'It still redirects.' },
  'links, not allowed': { before: (fake) => (fake.keys[0].scopes = []), ready: 'This key can’t list links' },
  account: { act: (page) => page.getByRole('button', { name: /Signed in with/ }).click(), ready: 'Sign out' },
});
