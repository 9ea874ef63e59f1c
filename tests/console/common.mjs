// What the tests of the console have in common: one browser, a page per test, and what no page may do.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { start } from './server.mjs';

export const MODULES = process.env.CONSOLE_MODULES;
const load = createRequire(`${MODULES}/`);
const { chromium } = load('playwright-core');
const AXE = readFileSync(load.resolve('axe-core/axe.min.js'), 'utf8');
export const PATIENCE = 10_000;
/** The address of a program whose console is tested; without one, the files in `src/console` are. */
export const PROGRAM = process.env.CONSOLE_API;
/** How many times slower the scripts of pages run, to find tests that do not wait for what they look at. */
const SLOWER = Number(process.env.CONSOLE_SLOWER ?? 0);

let browser;
let server;

/** The browser, the same for all tests. */
export async function theBrowser() {
  if (browser?.isConnected()) return browser;
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-dev-shm-usage'] });
  return browser;
}

export async function theServer() {
  server ??= await start({ console: PROGRAM });
  return server;
}

after(async () => {
  await browser?.close();
  server?.close();
});

/** Chromium writes these of answers that the tests want. */
const EXPECTED = /Failed to load resource: (the server responded with a status of (4|5)\d\d|net::ERR_)/;

/** A page of its own. `bad` collects what the page must not do; a link may lead to the origins in `elsewhere`. */
export async function open({ base, key, hash = '#/links', width = 1280, theme = 'light', elsewhere = [] }) {
  const context = await (await theBrowser()).newContext({
    viewport: { width, height: 860 }, colorScheme: theme, locale: 'en-GB', timezoneId: 'Europe/Berlin', permissions: ['clipboard-read', 'clipboard-write'], reducedMotion: 'reduce',
  });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  if (SLOWER) await (await context.newCDPSession(page)).send('Emulation.setCPUThrottlingRate', { rate: SLOWER });
  const bad = [];
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && !EXPECTED.test(message.text()) && bad.push(`${message.type()}: ${message.text()}`));
  page.on('pageerror', (error) => bad.push(`thrown: ${error.stack}`));
  page.on('dialog', (dialog) => {
    if (dialog.type() !== 'beforeunload') bad.push(`dialog: ${dialog.message()}`);
    dialog.accept();
  });
  const calls = [];
  context.on('request', (request) => {
    const url = new URL(request.url());
    if (url.origin !== new URL(base).origin && !elsewhere.includes(url.origin) && url.protocol !== 'blob:' && url.protocol !== 'data:') bad.push(`request: ${request.url()}`);
    if (!url.pathname.includes('/console')) calls.push(`${request.method()} ${url.pathname.slice(new URL(base).pathname.replace(/\/$/, '').length)}${url.search}`);
  });
  await page.addInitScript(() => addEventListener('securitypolicyviolation', (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`)));
  if (key) {
    await page.addInitScript(([secret]) => {
      if (sessionStorage.getItem('tests.signed-in')) return;
      sessionStorage.setItem('tests.signed-in', 'yes');
      sessionStorage.setItem('signpost.key', secret);
    }, [key]);
  }
  await page.goto(`${base}/console${hash}`);
  return { page, context, bad, calls };
}

/** Acts on a page that is open, and closes it. It fails if the page did what it must not. */
export async function acting(name, seen, act) {
  try {
    await act();
    assert.deepEqual(seen.bad, []);
  } catch (error) {
    if (process.env.CONSOLE_SHOTS) await seen.page.screenshot({ path: `${process.env.CONSOLE_SHOTS}/${name.replace(/\W+/g, '-').slice(0, 80)}.png` }).catch(() => {});
    if (seen.bad.length) error.message += `\nBesides: ${seen.bad.join('\n')}`;
    throw error;
  } finally {
    await seen.context.close();
  }
}

/** A test with the fake of the API. */
export function screen(name, options, act) {
  test(name, { timeout: 60_000 }, async () => {
    const { base, fake } = await theServer();
    fake.reset();
    if (options.fill !== false) fake.fill();
    options.before?.(fake);
    const seen = await open({ base, key: options.signedOut ? undefined : fake.secret, ...options });
    await acting(name, seen, () => act({ ...seen, fake, base }));
  });
}

/** What axe finds; by one rule alone, if one is given. */
export async function axe(page, rule) {
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(AXE);
  return page.evaluate(async (only) => {
    const { violations } = await axe.run(document, { resultTypes: ['violations'], runOnly: only ? { type: 'rule', values: [only] } : ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] });
    return violations.map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => `${node.target} ${node.any[0]?.message ?? node.failureSummary}`).join(' | ')}`);
  }, rule);
}

/** The window has its new size, and plots have drawn themselves for it. */
export const settled = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)))));
export const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
export const dialog = (page) => page.locator('dialog[open]').last();
/** Waits until a condition holds. `what` is the condition in words, or tells at the end what was there instead. */
export async function until(holds, what) {
  for (const end = Date.now() + PATIENCE; ; ) {
    const value = await holds();
    if (value) return value;
    if (Date.now() > end) assert.fail(`not within ${PATIENCE} ms: ${typeof what === 'function' ? what() : what}`);
    await new Promise((done) => setTimeout(done, 30));
  }
}
/** Checks what a page has, which it may have only with its next task: a string or a number, a pattern of a string, an object. */
export async function is(read, wanted) {
  const check = wanted instanceof RegExp ? assert.match : assert.deepStrictEqual;
  let fault;
  const holds = async () => {
    try {
      check(await read(), wanted);
      return true;
    } catch (error) {
      fault = error;
      return false;
    }
  };
  await until(holds, () => fault.message);
}
const OWN_MS = 200;
/** Checks that screens take less than 200 ms of their own: a first view, and a step on it. Of each: its address, what says that it is
 * there, and the step. */
export async function assertOwnTime(page, context, base, screens) {
  const inspector = await context.newCDPSession(page);
  // The processor's time for scripts, styles and layout since the document began: other programs may be busy besides.
  await inspector.send('Performance.enable', { timeDomain: 'threadTicks' });
  const spent = async () => {
    const { metrics } = await inspector.send('Performance.getMetrics');
    const own = metrics.filter(({ name }) => ['ScriptDuration', 'V8CompileDuration', 'RecalcStyleDuration', 'LayoutDuration'].includes(name));
    return 1000 * own.reduce((sum, { value }) => sum + value, 0);
  };
  const taken = {};
  for (const [hash, ready, act] of screens) {
    // Another address, for one with another fragment alone is not loaded again.
    await page.goto(`${base}/console?${Object.keys(taken).length}${hash}`);
    await ready();
    const shown = await spent();
    await act();
    taken[hash] = [Math.round(shown), Math.round((await spent()) - shown)];
  }
  console.log(`own time in ms, first view and next step: ${JSON.stringify(taken)}`);
  for (const [hash, times] of Object.entries(taken)) for (const ms of times) assert.ok(ms < OWN_MS, `${hash}: ${ms} ms`);
}
/** Starts the program for the first time, in a directory of its own and on free ports of the loopback. @param {Record<string, string>} [settings] */
export async function startProgram(settings = {}) {
  const directory = await mkdtemp(join(tmpdir(), 'console-'));
  const env = { PATH: process.env.PATH, SIGNPOST_DATA_DIR: directory, SIGNPOST_HTTP__LISTEN: '127.0.0.1:0', SIGNPOST_ADMIN__LISTEN: '127.0.0.1:0', ...settings };
  const program = spawn(process.env.CONSOLE_PROGRAM, { env, cwd: directory, stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = new Promise((done) => program.on('exit', done));
  const stop = async () => {
    program.kill();
    await ended;
    await rm(directory, { recursive: true });
  };
  let greeting = '';
  program.stdout.on('data', (part) => (greeting += part));
  try {
    await until(() => greeting.includes('serves on'), 'the program serves');
  } catch (error) {
    await stop();
    throw error;
  }
  return { greeting, stop };
}
export { assert, test };
