// Pictures of the console for the README: `tests/console/run shots` writes them to docs/shots.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { open, test, theServer } from './common.mjs';
import { ROOT } from './files.mjs';

const SHOTS = [
  ['console-links', 'light', 1280, '#/links', 'shop.example.com/summer'],
  ['console-link', 'dark', 1280, '#/links/autumn', 'news.ycombinator.com'],
  ['console-phone', 'light', 390, '#/links/autumn', 'news.ycombinator.com'],
];

test('pictures are taken', async () => {
  const { base, fake } = await theServer();
  const directory = join(ROOT, 'docs/shots');
  mkdirSync(directory, { recursive: true });
  for (const [name, theme, width, hash, ready] of SHOTS) {
    fake.reset();
    fake.fill();
    // A host that readers know not to be theirs.
    for (const link of fake.links) link.short_url = `https://sign.example/${link.short_id}`;
    const { page, context } = await open({ base, key: fake.secret, hash, width, theme });
    await page.getByText(ready).first().waitFor();
    await page.screenshot({ path: join(directory, `${name}.png`) });
    await context.close();
  }
});
