// Pictures of the console for the README, of the fake's links: `tests/console/run shots` writes them to docs/shots.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { open, startProgram, test, theBrowser, theServer } from './common.mjs';
import { ROOT } from './files.mjs';

/** The same picture as WebP, which is smaller. @param {Buffer} png */
async function webp(png) {
  const page = await (await theBrowser()).newPage();
  const url = await page.evaluate(async (text) => {
    const image = new Image();
    image.src = `data:image/png;base64,${text}`;
    await image.decode();
    const canvas = Object.assign(document.createElement('canvas'), { width: image.width, height: image.height });
    canvas.getContext('2d').drawImage(image, 0, 0);
    return canvas.toDataURL('image/webp', 0.9);
  }, png.toString('base64'));
  await page.close();
  return Buffer.from(url.split(',')[1], 'base64');
}

/** The QR code of a link, as the program makes it. @param {string} base @param {string} name */
async function qrOf(base, name) {
  const program = await startProgram({ SIGNPOST_HTTP__BASE_URL: base });
  try {
    const [, address] = /serves on (\S+)/.exec(program.greeting);
    const [, secret] = /root key +(sp_\w+)/.exec(program.greeting);
    const headers = { 'x-api-key': secret, 'content-type': 'application/json' };
    await fetch(`http://${address}/links/${name}`, { method: 'PUT', headers, body: '{"redirect_url":"https://example.com/"}' });
    return await (await fetch(`http://${address}/${name}/qr?format=svg`)).text();
  } finally {
    await program.stop();
  }
}

test('pictures are taken', async () => {
  // A host that readers know not to be theirs.
  const host = 'https://sign.example';
  const qr = await qrOf(host, 'autumn');
  const { base, fake } = await theServer();
  const directory = join(ROOT, 'docs/shots');
  mkdirSync(directory, { recursive: true });
  for (const theme of ['light', 'dark']) {
    fake.reset();
    fake.fill();
    for (const link of fake.links) link.short_url = `${host}/${link.short_id}`;
    fake.rule('GET', /qr$/, { status: 200, headers: { 'content-type': 'image/svg+xml' }, body: qr });
    const { page, context } = await open({ base, key: fake.secret, hash: '#/links/autumn', theme });
    await page.getByText('news.ycombinator.com').first().waitFor();
    await page.getByText('live', { exact: true }).waitFor();
    writeFileSync(join(directory, `console-${theme}.webp`), await webp(await page.screenshot()));
    await context.close();
  }
});
