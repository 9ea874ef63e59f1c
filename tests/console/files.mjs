// The files of the console as they stand in `src/console`, for development without a build: each script by itself.
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), '../..');
export const SOURCES = join(ROOT, 'src/console');

const TYPES = { css: 'text/css; charset=utf-8', js: 'text/javascript; charset=utf-8', svg: 'image/svg+xml', html: 'text/html; charset=utf-8' };

/** The headers of the page, and of all files. */
export const PAGE_HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
  'cross-origin-opener-policy': 'same-origin',
};
export const ALL_HEADERS = { 'x-content-type-options': 'nosniff', 'referrer-policy': 'no-referrer' };

export const source = (path) => readFileSync(join(SOURCES, path), 'utf8');

/** All scripts of the console, but for the vendored ones. */
export const scripts = () => readdirSync(SOURCES, { recursive: true }).filter((path) => path.endsWith('.js') && !path.startsWith('vendor/')).sort();

/** The file at a path of the service. */
export function fileAt(path) {
  const type = TYPES[path.split('.').at(-1)] ?? TYPES.html;
  // The vendored scripts are preloaded below other paths.
  if (path === '/console') return { type, text: source('index.html').replaceAll('console/@/', 'console/sources/').replace(/<link rel="modulepreload".*\n/g, '') };
  const name = path.replace(/^\/console\/sources\//, '');
  return readdirSync(SOURCES, { recursive: true }).includes(name) ? { type, text: source(name) } : undefined;
}
