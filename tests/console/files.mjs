// What the program makes of `src/console` when it first serves it: the same bytes, path and headers.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), '../..');
export const SOURCES = join(ROOT, 'src/console');

const TYPES = { css: 'text/css; charset=utf-8', js: 'text/javascript; charset=utf-8', svg: 'image/svg+xml', html: 'text/html; charset=utf-8' };
/** The files that are served as they are, below their last name. The other scripts are joined to `main.js`. */
export const PLAIN = ['app.css', 'icon.svg', 'theme.js', 'vendor/hooks.js', 'vendor/htm.js', 'vendor/preact.js'];
const lastName = (path) => path.split('/').at(-1);

export const PAGE_HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
  'cross-origin-opener-policy': 'same-origin',
};
export const ALL_HEADERS = { 'x-content-type-options': 'nosniff', 'referrer-policy': 'no-referrer' };

const source = (path) => readFileSync(join(SOURCES, path), 'utf8');

/** All scripts of the console, but for the vendored ones. */
export const scripts = () =>
  readdirSync(SOURCES, { recursive: true }).map((path) => path.replaceAll('\\', '/')).filter((path) => path.endsWith('.js') && !path.startsWith('vendor/')).sort();

/** A script without its comment lines and indentation. A line that begins with a comment is one, for no template has such a line. */
function lean(text) {
  let inside = false;
  const kept = [];
  for (let line of text.split('\n')) {
    line = line.trim();
    if (!inside && line.startsWith('/**')) inside = true;
    if (inside) {
      const end = line.indexOf('*/');
      if (end < 0) continue;
      inside = false;
      line = line.slice(end + 2).trim();
    }
    if (line && !line.startsWith('//')) kept.push(line);
  }
  return kept;
}

/** `main.js` and all that it imports as one module: each file is a function that returns what the file exports. */
export function joined() {
  const head = new Set();
  const parts = [];
  const numbers = new Map();
  const add = (path) => {
    if (numbers.has(path)) return numbers.get(path);
    const exported = [];
    const body = lean(source(path)).map((line) => {
      const from = /^import (.+) from '(.+)';$/.exec(line);
      if (from) {
        const to = posix.join(posix.dirname(path), from[2]);
        if (!to.startsWith('vendor/')) return `const ${from[1]} = m${add(to)};`;
        head.add(`import ${from[1]} from './${lastName(to)}';`);
        return '';
      }
      const list = /^export (\{.+\});$/.exec(line);
      if (list) exported.push(list[1].slice(1, -1).trim());
      const own = /^export ((?:const|let|class|function|async function) (\w+).*)$/.exec(line);
      if (own) exported.push(own[2]);
      return own ? own[1] : list ? '' : line;
    });
    const number = numbers.size;
    numbers.set(path, number);
    parts.push(`const m${number} = (() => {\n${body.filter(Boolean).join('\n')}\nreturn { ${exported.join(', ')} };\n})();`);
    return number;
  };
  add('main.js');
  return `${[...head].join('\n')}\n${parts.join('\n')}\n`;
}

/** The page, and the assets by path. */
export function build() {
  const contents = new Map(PLAIN.map((path) => [lastName(path), source(path)]));
  contents.set('main.js', joined());
  const hash = createHash('sha256');
  for (const name of [...contents.keys()].sort()) hash.update(`${name}\0${contents.get(name)}\0`);
  const version = hash.digest('hex').slice(0, 16);
  const file = (path, text) => ({ text, type: TYPES[path.split('.').at(-1)], gzip: gzipSync(text, { level: 9 }) });
  const page = file('index.html', source('index.html').replaceAll('console/@/', `console/${version}/`));
  const assets = new Map([...contents].map(([path, text]) => [`/console/${version}/${path}`, file(path, text)]));
  const etag = `W/"${createHash('sha256').update(page.text).digest('hex').slice(0, 16)}"`;
  return { page, assets, etag, version, size: [page, ...assets.values()].reduce((sum, { gzip }) => sum + gzip.length, 0) };
}
