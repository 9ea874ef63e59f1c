// A link, its webhooks, clicks, keys and lists of many links, as they look.
import { dialog } from './common.mjs';
import { limited, problem } from './fake.mjs';
import { look, openGroups } from './look.mjs';

const autumn = '#/links/autumn';

look({
  link: { hash: autumn, ready: 'news.ycombinator.com' },
  'link, a year as a table': { hash: `${autumn}?range=365`, act: (page) => page.getByText('Show as a table').click(), ready: 'Week (UTC)' },
  'link, loading': { hash: autumn, before: (fake) => fake.rule('GET', /links/, 'hang'), ready: 'Still loading' },
  'link, refused': { hash: autumn, before: (fake) => fake.rule('GET', /analytics$/, problem(403, 'The link belongs to another key.', { slug: 'not-owner' })), ready: 'belongs to another key' },
  'link, not tracked': { hash: '#/links/Hs9dPw5', ready: 'Clicks of this link are not kept' },
  'link, no clicks': { hash: '#/links/none', before: (fake) => fake.link({ slug: 'none' }), ready: 'No clicks yet' },
  'link, dates, breakdowns of the range': { hash: `${autumn}?range=custom&from=2025-12-03&until=2026-01-05&scope=range&bots=exclude`, act: (page) => page.getByLabel('Devices by').selectOption('browser'), ready: 'Firefox' },
  'link, colours refused': { hash: autumn, act: async (page) => { await page.getByLabel('Modules').fill('#ffffff'); }, ready: 'too close to light' },
  'link, blocked': { hash: '#/links/bad', before: (fake) => fake.link({ slug: 'bad', state: 'blocked', block_reason: 'phishing', archived: true, notes: 'x '.repeat(400), expires_at: '2030-01-01T00:00:00.000Z' }), ready: 'Blocked because' },
  'link, block': { hash: autumn, before: (fake) => Object.assign(fake.keys[0], { name: 'root', created_by: null }), act: async (page) => { await page.getByRole('button', { name: 'More actions' }).click(); await page.getByRole('button', { name: 'Block…' }).click(); }, ready: 'The owner of the link can read it' },
  'link, edit': { hash: autumn, act: async (page) => { await page.getByRole('button', { name: 'Edit' }).click(); await openGroups(page); }, ready: 'For people. At most' },
  'link, delete': { hash: autumn, act: async (page) => { await page.getByRole('button', { name: 'More actions' }).click(); await page.getByRole('button', { name: 'Delete…' }).click(); }, ready: 'This can’t be undone' },
  'link, conflict': {
    hash: autumn, ready: 'This link was changed meanwhile',
    before: (fake) => fake.rule('PATCH', /links/, () => { Object.assign(fake.links.find(({ short_id }) => short_id === 'autumn'), { title: 'Theirs', revision: 9 }); return problem(412, 'Changed.'); }),
    act: async (page) => { await page.getByRole('button', { name: 'Edit' }).click(); await dialog(page).getByLabel('Title').fill('Mine'); await dialog(page).getByRole('button', { name: 'Save' }).click(); },
  },
  'link, missing': { hash: '#/links/zzzzzzz', ready: 'There is no such link' },
  clicks: { hash: '#/clicks?range=90&scope=range', ready: 'Of the tracked links' },
  'clicks, not allowed': { hash: '#/clicks', before: (fake) => (fake.keys[0].scopes = []), ready: 'This key can’t see clicks' },
  webhooks: { hash: `${autumn}/webhooks`, act: (page) => page.getByRole('button', { name: 'Test all' }).click(), ready: 'answered 204' },
  'webhooks, suspended': { hash: `${autumn}/webhooks`, before: (fake) => (fake.suspended = '2026-11-20T10:00:00.000Z'), ready: 'nothing is sent until' },
  'webhooks, none': { hash: '#/links/m1CoVi3/webhooks', ready: 'No webhooks' },
  'webhooks, replay': { hash: `${autumn}/webhooks`, act: (page) => page.getByRole('button', { name: 'Replay…' }).click(), ready: 'sent again with the same ids' },
  'webhooks, refused': { hash: `${autumn}/webhooks`, before: (fake) => fake.rule('GET', /status/, problem(500, 'Something broke.')), ready: 'Something broke' },
  keys: { hash: '#/keys', ready: 'old deploy script' },
  'keys, new': { hash: '#/keys', act: (page) => page.getByRole('button', { name: 'New key' }).click(), ready: 'For people: who or what' },
  'keys, secret': { hash: '#/keys', act: async (page) => { await page.getByRole('button', { name: 'New key' }).click(); await dialog(page).getByLabel('Name').fill('x'); await page.keyboard.press('Enter'); }, ready: 'shown only once' },
  'keys, rotate': { hash: '#/keys', act: async (page) => { await page.getByRole('button', { name: 'Actions for newsletter' }).click(); await page.getByRole('button', { name: 'Rotate…' }).click(); }, ready: 'gets a new secret' },
  'keys, change': { hash: '#/keys', act: async (page) => { await page.getByRole('button', { name: 'Actions for old deploy script' }).click(); await page.getByRole('button', { name: 'Change…' }).click(); }, ready: 'Date and time' },
  'keys, revoke': { hash: '#/keys', act: async (page) => { await page.getByRole('button', { name: 'Actions for newsletter' }).click(); await page.getByRole('button', { name: 'Revoke…' }).click(); }, ready: 'is refused within 5 seconds' },
  'keys, not allowed': { hash: '#/keys', before: (fake) => (fake.keys[0].scopes = []), ready: 'can’t manage other keys' },
  bulk: { hash: '#/bulk', ready: 'No rows yet' },
  'bulk, refused rows': { hash: '#/bulk', act: async (page) => { await page.getByLabel('Addresses').fill(`ftp://${'x'.repeat(200)}\nhttps://example.com/`); await page.getByRole('button', { name: 'Make 2 links' }).click(); }, ready: '1 row refused' },
  'bulk, waiting': { hash: '#/bulk', before: (fake) => fake.rule('POST', /bulk/, limited(50)), act: async (page) => { await page.getByLabel('Addresses').fill('https://example.com/'); await page.getByRole('button', { name: 'Make 1 link' }).click(); }, ready: 'Sending continues automatically' },
  'bulk, stopped': { hash: '#/bulk', before: (fake) => fake.rule('POST', /bulk/, problem(500, 'Something broke.')), act: async (page) => { await page.getByLabel('Addresses').fill('https://example.com/'); await page.getByRole('button', { name: 'Make 1 link' }).click(); }, ready: 'Going on makes no link twice' },
  'no such page': { hash: '#/nowhere', ready: 'There is no such page' },
  'session ended': { before: (fake) => fake.rule('GET', /links$/, problem(401, 'No.')), ready: 'Your session has ended' },
});
