// Looks at screens and their states: what axe finds, and whether anything is wider than the window.
import { assert, axe, open, overflow, settled, test, theServer } from './common.mjs';

const THEMES = ['light', 'dark'];
const WIDTHS = [1280, 390, 320];

/** Opens all groups of fields of a form. */
export async function openGroups(page) {
  await page.locator('.groups summary').first().waitFor();
  for (const group of await page.locator('.groups summary').all()) await group.click();
}

/** Tests each of these views.
 * @param {Record<string, {hash?: string, signedOut?: boolean, before?: (fake: any) => void, act?: (page: any, more: any) => Promise<unknown>, ready: string | RegExp}>} views */
export function look(views) {
  for (const [name, view] of Object.entries(views)) {
    test(`axe finds nothing and nothing is cut, in both themes, at 1280, 390 and 320 px: ${name}`, { timeout: 120_000 }, async () => {
      const { base, fake } = await theServer();
      fake.reset();
      fake.fill();
      view.before?.(fake);
      const { page, context, bad } = await open({ base, key: view.signedOut ? undefined : fake.secret, hash: view.hash ?? '#/links' });
      const found = [];
      try {
        if (view.act) {
          await page.getByRole('main').first().waitFor();
          await view.act(page, { fake, context });
        }
        await page.getByText(view.ready).locator('visible=true').first().waitFor();
        for (const width of WIDTHS) {
          await page.setViewportSize({ width, height: 860 });
          for (const theme of THEMES) {
            await page.emulateMedia({ colorScheme: theme });
            await settled(page);
            if (process.env.CONSOLE_LOOKS) await page.screenshot({ path: `${process.env.CONSOLE_LOOKS}/${name.replace(/\W+/g, '-')}-${theme}-${width}.png`, fullPage: true });
            // A theme changes colours and nothing else.
            found.push(...(await axe(page, theme === 'dark' ? 'color-contrast' : undefined)).map((one) => `${theme} ${width}: ${one}`));
          }
          const wide = await overflow(page);
          if (wide > 0) found.push(`${width}: ${wide} px too wide`);
        }
      } finally {
        await context.close();
      }
      assert.deepEqual([...found, ...bad], []);
    });
  }
}
