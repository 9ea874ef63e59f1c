// Many links at once: a pasted list, or a CSV file, that is sent in parts. It goes on while other screens are shown.
import { api, freshKey } from './api.js';
import { parseCsv } from './csv.js';
import { drafts } from './drafts.js';
import { session } from './session.js';

/** The columns of a CSV file, by the names that people use. @type {Record<string, string>} */
const COLUMNS = {
  redirect_url: 'redirect_url', url: 'redirect_url', target: 'redirect_url', long_url: 'redirect_url', destination: 'redirect_url',
  slug: 'slug', name: 'slug', short_id: 'slug', alias: 'slug', title: 'title', tags: 'tags', notes: 'notes', webhooks: 'webhooks', expires_at: 'expires_at', not_before: 'not_before',
  fallback_url: 'fallback_url', redirect_status: 'redirect_status', cache_seconds: 'cache_seconds', archived: 'archived', tracked: 'tracked', preview: 'preview', skip_bots: 'skip_bots', data: 'data',
};
const FLAGS = new Set(['archived', 'tracked', 'preview', 'skip_bots']);
// A call may have 1 MiB. No row that the service takes is near a quarter of it.
const [MOST_ROWS, MOST_BYTES, MOST_CHARS] = [500, 900_000, 250_000];
/** How deep `data` may nest: the service refuses a whole call that nests deeper. */
const MOST_LEVELS = 62;

/** @typedef {{line: number, target: string, source: string, body: string, fault?: string}} BulkRow */
/** `isUnknown`: the row was sent, and the answer was lost. @typedef {{row: BulkRow, ok: boolean, isUnknown?: boolean, short_url: string, reason: string}} Result */

/** How deep a value nests. @param {unknown} value @returns {number} */
const depthOf = (value) => (value !== null && typeof value === 'object' ? 1 + Math.max(0, ...Object.values(value).map(depthOf)) : 0);

/** The JSON text of a cell. @param {string} field @param {string} value */
function cellJson(field, value) {
  // As the service writes them; with semicolons where there is no comma.
  if (field === 'tags') return JSON.stringify(value.split(value.includes(',') ? ',' : ';').map((tag) => tag.trim()).filter(Boolean));
  if (field === 'webhooks') return JSON.stringify(value.split(/\s+/).filter(Boolean));
  if (field === 'cache_seconds' || field === 'redirect_status') return /^\d+$/.test(value) ? value : JSON.stringify(value);
  if (FLAGS.has(field)) return /^(true|yes|1)$/i.test(value) ? 'true' : /^(false|no|0)$/i.test(value) ? 'false' : JSON.stringify(value);
  if (field === 'data') {
    if (depthOf(JSON.parse(value)) > MOST_LEVELS) throw new RangeError(`nests more than ${MOST_LEVELS} levels deep`);
    return value;
  }
  return JSON.stringify(value);
}

/** @param {string[]} fields @param {string[]} cells @param {number} line @param {string} source @returns {BulkRow} */
function rowOf(fields, cells, line, source) {
  const found = new Map();
  let fault;
  fields.forEach((field, i) => {
    const value = (cells[i] ?? '').trim();
    if (!field || !value) return;
    try {
      found.set(field, cellJson(field, value));
    } catch (error) {
      fault = `${field}: ${error instanceof RangeError ? error.message : 'this is not valid JSON'}`;
    }
  });
  if (!found.has('redirect_url')) fault = 'no target';
  const body = `{${[...found].map(([field, json]) => `"${field}":${json}`).join(',')}}`;
  if (body.length > MOST_CHARS) fault = 'too long';
  const target = found.has('redirect_url') ? JSON.parse(found.get('redirect_url')) : '';
  return { line, source, target, fault, body };
}

/** A CSV with a header line, or a list: per line a URL and, after white space, a name and a title.
 * @param {string} text @returns {{rows: BulkRow[], ignored: string[], header: string}} */
export function readRows(text) {
  const clean = text.replace(/^\ufeff/, '');
  const [head = ''] = clean.split(/\r?\n/, 1);
  const separator = [',', ';', '\t'].toSorted((a, b) => head.split(b).length - head.split(a).length)[0];
  const names = (parseCsv(head, separator)[0]?.cells ?? []).map((cell) => cell.trim().toLowerCase());
  const fields = names.map((name) => (Object.hasOwn(COLUMNS, name) ? COLUMNS[name] : ''));
  if (fields.includes('redirect_url')) {
    const sources = parseCsv(clean, separator).slice(1);
    const lines = clean.split(/\r?\n/);
    const rows = sources.map(({ line, cells }, i) => rowOf(fields, cells, line, lines.slice(line - 1, (sources[i + 1]?.line ?? lines.length + 1) - 1).join('\n').trimEnd()));
    return { rows, ignored: names.filter((name, i) => name && !fields[i]), header: head };
  }
  const rows = clean.split(/\r?\n/).map((source, i) => {
    const [target = '', slug = '', ...title] = source.trim().split(/\s+/);
    return rowOf(['redirect_url', 'slug', 'title'], [target, slug, title.join(' ')], i + 1, source);
  });
  return { rows: rows.filter(({ source }) => source.trim()), ignored: [], header: '' };
}

/** Parts that the API takes in one request each. @param {BulkRow[]} rows */
function partsOf(rows) {
  const parts = [];
  let part = { rows: /** @type {BulkRow[]} */ ([]), bytes: 0, key: freshKey(), isUnknown: false };
  for (const row of rows) {
    const bytes = new TextEncoder().encode(row.body).length + 1;
    if (part.rows.length === MOST_ROWS || (part.rows.length && part.bytes + bytes > MOST_BYTES)) {
      parts.push(part);
      part = { rows: [], bytes: 0, key: freshKey(), isUnknown: false };
    }
    part.rows.push(row);
    part.bytes += bytes;
  }
  return part.rows.length ? [...parts, part] : parts;
}

/** @typedef {{state: 'running' | 'waiting' | 'stopped' | 'done', total: number, results: Result[], made: number, failed: number, header: string, error?: any, waitUntil?: number}} Run */

/** @type {Run | undefined} */
let run;
/** @type {ReturnType<typeof partsOf>} */
let unsentParts = [];
/** The rows that are not made. They are the draft, so that after a reload none is sent again that was made. @type {BulkRow[]} */
let left = [];
/** Which run it is: an answer to an earlier one changes nothing. */
let turn = 0;
/** The key whose links they are. @type {string | undefined} */
let runOwner;
/** @type {Set<() => void>} */
const runWatchers = new Set();
const warnOfRun = (event) => event.preventDefault();

/** @param {Partial<Run>} changes */
function change(changes) {
  if (!run) return;
  run = { ...run, ...changes };
  removeEventListener('beforeunload', warnOfRun);
  if (run.state !== 'done') addEventListener('beforeunload', warnOfRun);
  for (const watcher of [...runWatchers]) watcher();
}

/** @param {any} problem */
const reasonOf = (problem) => (problem.errors?.length ? problem.errors.map(({ pointer, detail }) => `${(pointer ?? '').slice(1)} ${detail}`.trim()).join('; ') : (problem.detail ?? 'refused'));

/** @param {BulkRow[]} rows @param {any[]} answers */
function take(rows, answers) {
  if (!run) return;
  const results = rows.map((row, i) => {
    const answer = answers[i] ?? {};
    if (answer.link) return { row, ok: true, short_url: answer.link.short_url, reason: '' };
    return { row, ok: false, ...(answer.isUnknown && { isUnknown: true }), short_url: '', reason: reasonOf(answer.problem ?? {}) };
  });
  // What may be made is not put back: it would be made twice.
  const gone = new Set(results.filter(({ ok, isUnknown }) => ok || isUnknown).map(({ row }) => row));
  left = left.filter((row) => !gone.has(row));
  drafts.keep('many', left.length ? [run.header, ...left.map(({ source }) => source)].filter(Boolean).join('\n') : undefined);
  change({ results: [...run.results, ...results], made: run.made + results.filter(({ ok }) => ok).length, failed: run.failed + results.filter(({ ok }) => !ok).length });
}

/** Rows that are not sent. @param {string} reason */
function giveUp(reason) {
  const lost = { problem: { detail: 'sent without an answer: look in the list whether it is made' }, isUnknown: true };
  for (const rest of unsentParts) take(rest.rows, rest.rows.map(() => (rest.isUnknown ? lost : { problem: { detail: reason } })));
  unsentParts = [];
}

const pause = (/** @type {number} */ ms) => new Promise((done) => setTimeout(done, ms));

async function work() {
  const mine = turn;
  while (unsentParts.length && run?.state === 'running') {
    const [part] = unsentParts;
    try {
      const answer = await api.bulk(`{"links":[${part.rows.map(({ body }) => body).join(',')}]}`, part.key);
      if (turn !== mine) return;
      unsentParts.shift();
      take(part.rows, answer.results);
      if (!answer.results.at(-1)?.problem?.type?.endsWith(':link-quota-exceeded')) continue;
      giveUp('not sent: the monthly limit of links is reached');
    } catch (error) {
      if (turn !== mine) return;
      const refused = /** @type {any} */ (error);
      // Only these say that nothing was made.
      part.isUnknown ||= ![400, 401, 403, 404, 405, 413, 415, 422, 429].includes(refused.status);
      if (!refused.retryAt) {
        change({ state: 'stopped', error: refused });
        return;
      }
      change({ state: 'waiting', waitUntil: refused.retryAt, error: refused });
      await pause(Math.max(500, refused.retryAt - Date.now() + 250));
      if (turn !== mine || /** @type {Run | undefined} */ (bulk.run)?.state !== 'waiting') return;
      change({ state: 'running', waitUntil: undefined, error: undefined });
    }
  }
  change({ state: 'done' });
}

export const bulk = {
  get run() {
    return run;
  },
  /** @param {() => void} watcher */
  watch(watcher) {
    runWatchers.add(watcher);
    return () => {
      runWatchers.delete(watcher);
    };
  },
  /** @param {BulkRow[]} rows @param {string} header */
  start(rows, header) {
    const bad = rows.filter(({ fault }) => fault);
    const good = rows.filter(({ fault }) => !fault);
    unsentParts = partsOf(good);
    left = rows;
    turn += 1;
    runOwner = session.self?.key_id;
    run = {
      state: 'running', total: rows.length, made: 0, failed: bad.length, header,
      results: bad.map((row) => ({ row, ok: false, short_url: '', reason: row.fault ?? '' })),
    };
    change({});
    work();
  },
  /** The same parts with the same keys: what was made already is answered again, and not made twice. */
  resume() {
    if (run?.state !== 'stopped') return;
    change({ state: 'running', error: undefined });
    work();
  },
  /** Ends it after the call that is under way. */
  stop() {
    const isSending = run?.state === 'running';
    const sent = isSending ? unsentParts.splice(0, 1) : [];
    giveUp('not sent: you stopped it');
    unsentParts = sent;
    if (!isSending) change({ state: 'done', error: undefined });
  },
  close() {
    turn += 1;
    unsentParts = [];
    change({ state: 'done' });
    run = undefined;
    for (const watcher of [...runWatchers]) watcher();
  },
};

addEventListener('online', () => run?.state === 'stopped' && run.error?.isOffline && bulk.resume());
// Signed in again: on with it. Another key must make none of these links.
session.watch(() => {
  if (run && !session.isStill(runOwner)) bulk.close();
  else if (run?.state === 'stopped' && run.error?.status === 401 && session.key && !session.ended) bulk.resume();
});
