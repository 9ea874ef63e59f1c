// Calls of the API. Addresses are relative to the page, so that the console works below any path of a proxy.
import { session } from './session.js';

/** @typedef {{pointer?: string, parameter?: string, header?: string, detail: string}} FieldFault */
/** @typedef {{short_id: string, short_url: string, redirect_url: string, created_at: string, slug: string | null, title: string | null, tags: string[],
 *   notes: string | null, webhooks: string[], tracked: boolean, archived: boolean, state: string, updated_at: string, revision: number,
 *   block_reason: string | null, [field: string]: any}} LinkRecord */
/** A link's record with the text of its `data` as the server keeps it, and its ETag.
 * @typedef {{record: LinkRecord, text: string, etag: string}} ReadLink */
/** @typedef {Record<string, string | number | boolean | null | undefined>} Parameters */

const BASE = new URL('.', document.baseURI);
const PATIENCE_MS = 60_000;

/** @param {string} path @param {Parameters} [query] */
export function address(path, query = {}) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== '') url.searchParams.set(name, String(value));
  }
  return url.href;
}

/** A request that was refused, or that got no answer (status 0). */
export class ApiError extends Error {
  /** @param {{status: number, title: string, detail: string, type?: string, errors?: FieldFault[], limit?: number, current?: number, scope?: string}} problem
   * @param {Headers} [headers] */
  constructor(problem, headers = new Headers()) {
    super(problem.detail);
    this.status = problem.status;
    this.title = problem.title;
    this.detail = problem.detail;
    this.slug = String(problem.type ?? '').split(':').at(-1) ?? '';
    this.errors = Array.isArray(problem.errors) ? problem.errors : [];
    this.limit = problem.limit;
    this.current = problem.current;
    this.scope = problem.scope;
    this.requestId = headers.get('x-request-id');
    const seconds = Number(headers.get('retry-after') ?? Number.NaN);
    /** When the service answers again, in milliseconds since 1970. @type {number | undefined} */
    this.retryAt = Number.isFinite(seconds) && [409, 429, 503].includes(problem.status) ? Date.now() + Math.min(seconds, 86_400) * 1000 : undefined;
  }

  get isOffline() {
    return this.status === 0;
  }

  /** The server is too old, or too new, to have this path. */
  get isUnavailable() {
    return (this.status === 404 && /^unknown path/i.test(this.detail)) || this.status === 405 || this.status === 501;
  }
}

/** @param {unknown} cause */
function noAnswer(cause) {
  if (cause instanceof DOMException && cause.name === 'TimeoutError') {
    return new ApiError({ status: 0, title: 'No answer', detail: 'The service did not answer within a minute. Check the connection, then try again.' });
  }
  return new ApiError({ status: 0, title: 'The service can’t be reached', detail: 'Check the connection. Nothing that you typed is lost.' });
}

/** @param {Response} response @param {string} text */
function refusal(response, text) {
  const strange = { status: response.status, title: `Answer ${response.status}`, detail: 'This answer is not from Signpost: a proxy in between may have failed.' };
  let problem;
  try {
    problem = JSON.parse(text);
  } catch {
    return new ApiError(strange, response.headers);
  }
  const isProblem = problem !== null && typeof problem === 'object' && typeof problem.detail === 'string';
  return new ApiError(isProblem ? { title: 'Refused', ...problem, status: response.status } : strange, response.headers);
}

/** Answers later whether it is still the session of the same key: an answer that comes after a sign-out is nobody's. */
function whileSession() {
  const owner = session.self?.key_id;
  return () => owner === undefined || session.isStill(owner);
}

const overtaken = () => new DOMException('The session is over.', 'AbortError');

/** @typedef {{query?: Parameters, body?: string, headers?: Record<string, string>, signal?: AbortSignal, key?: string | null, patience?: number}} Options */

/** @param {string} method @param {string} path @param {Options} [options] */
async function send(method, path, { query, body, headers = {}, signal, key = session.key, patience = PATIENCE_MS } = {}) {
  const isCurrent = key === session.key ? whileSession() : () => true;
  const limits = [signal, patience ? AbortSignal.timeout(patience) : undefined].filter((one) => one !== undefined);
  /** @type {Response} */
  let response;
  try {
    response = await fetch(address(path, query), {
      method,
      body,
      headers: { ...headers, ...(key ? { 'X-API-Key': key } : {}), ...(body === undefined ? {} : { 'Content-Type': 'application/json' }) },
      signal: AbortSignal.any(limits),
      cache: 'no-store',
      redirect: 'error',
    });
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw noAnswer(cause);
  }
  if (!isCurrent()) {
    response.body?.cancel();
    throw overtaken();
  }
  if (response.ok) return response;
  const text = await response.text().catch(() => '');
  if (response.status === 401) session.end(key);
  throw refusal(response, text);
}

/** An answer with its whole body. @template T @param {string} method @param {string} path @param {Options | undefined} options @param {(answer: Response) => Promise<T>} bodyOf */
async function read(method, path, options, bodyOf) {
  const isCurrent = options?.key === undefined ? whileSession() : () => true;
  const response = await send(method, path, options);
  let body;
  try {
    body = await bodyOf(response);
  } catch (cause) {
    if (options?.signal?.aborted) throw cause;
    throw noAnswer(cause);
  }
  if (!isCurrent()) throw overtaken();
  return { response, body };
}

/** @param {string} method @param {string} path @param {Options} [options] */
async function call(method, path, options) {
  const { response, body: text } = await read(method, path, options, (answer) => answer.text());
  try {
    return { data: text === '' ? null : JSON.parse(text), text, headers: response.headers };
  } catch {
    throw refusal(response, '');
  }
}

/** @param {string} path @param {Parameters} [query] @param {AbortSignal} [signal] */
const get = async (path, query, signal) => (await call('GET', path, { query, signal })).data;
/** @param {string} id */
const link = (id) => `links/${encodeURIComponent(id)}`;
/** @param {string | null} id */
const scopeOf = (id) => (id === null ? '' : `${link(id)}/`);
/** @param {Awaited<ReturnType<typeof call>>} answer @returns {ReadLink} */
const readLink = ({ data, text, headers }) => ({ record: data, text, etag: headers.get('etag') ?? `"${data.revision}"` });
/** @param {string | undefined} etag @returns {Record<string, string>} */
const ifMatch = (etag) => (etag ? { 'If-Match': etag } : {});

/** A value for `Idempotency-Key`. `crypto.randomUUID` is missing on pages without TLS. */
export const freshKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');

export const api = {
  /** @param {string} [key] @returns {Promise<import('./session.js').KeyRecord>} */
  self: async (key) => (await call('GET', 'api-keys/self', key === undefined ? {} : { key })).data,
  /** @param {Parameters} query @param {AbortSignal} [signal] @returns {Promise<{links: LinkRecord[], next_cursor: string | null}>} */
  links: (query, signal) => get('links', query, signal),
  /** @param {string} id @param {AbortSignal} [signal] */
  link: async (id, signal) => readLink(await call('GET', link(id), { signal })),
  /** @param {string} body @param {string} once */
  create: async (body, once) => (await call('POST', 'shorten', { body, headers: { 'Idempotency-Key': once } })).data,
  /** @param {string} body @param {string} once */
  bulk: async (body, once) => (await call('POST', 'shorten/bulk', { body, headers: { 'Idempotency-Key': once }, patience: 180_000 })).data,
  /** @param {string} id @param {string} body @param {string} [etag] */
  change: async (id, body, etag) => readLink(await call('PATCH', link(id), { body, headers: ifMatch(etag) })),
  /** @param {string} id @param {string} [etag] */
  remove: (id, etag) => call('DELETE', link(id), { headers: ifMatch(etag) }),
  /** @param {string} id @param {string} reason */
  block: (id, reason) => call('POST', `${link(id)}/block`, { body: JSON.stringify({ reason }) }),
  /** @param {string} id */
  unblock: (id) => call('POST', `${link(id)}/unblock`),
  /** @param {string} id @param {Parameters} query @param {AbortSignal} [signal] */
  analytics: (id, query, signal) => get(`${link(id)}/analytics`, query, signal),
  /** @param {string} id @param {Parameters} query @param {AbortSignal} [signal] */
  summary: (id, query, signal) => get(`${link(id)}/analytics/summary`, query, signal),
  /** Of one link, or of all links of the key. @param {string | null} id @param {Parameters} query @param {AbortSignal} [signal] */
  series: (id, query, signal) => get(`${scopeOf(id)}analytics/series`, query, signal),
  /** @param {string | null} id @param {Parameters} query @param {AbortSignal} [signal] */
  breakdown: (id, query, signal) => get(`${scopeOf(id)}analytics/breakdown`, query, signal),
  /** @param {string} id @param {AbortSignal} signal @param {string} last */
  stream: (id, signal, last) =>
    send('GET', `${link(id)}/hits/stream`, { signal, patience: 0, headers: { Accept: 'text/event-stream', ...(last ? { 'Last-Event-ID': last } : {}) } }),
  /** @param {string} id @param {Parameters} query @param {AbortSignal} [signal] */
  deliveries: (id, query, signal) => get(`${encodeURIComponent(id)}/webhooks/status`, query, signal),
  /** @param {string} id @param {string} [url] */
  test: async (id, url) => (await call('POST', `${encodeURIComponent(id)}/webhooks/test`, { body: JSON.stringify(url === undefined ? {} : { url }) })).data,
  /** @param {string} id @param {Record<string, unknown>} body */
  replay: async (id, body) => (await call('POST', `${encodeURIComponent(id)}/webhooks/replay`, { body: JSON.stringify(body) })).data,
  /** @param {Parameters} query @param {AbortSignal} [signal] @returns {Promise<{api_keys: import('./session.js').KeyRecord[], next_cursor: string | null}>} */
  keys: (query, signal) => get('api-keys', query, signal),
  /** @param {Record<string, unknown>} body @param {string} once */
  createKey: async (body, once) => (await call('POST', 'api-keys', { body: JSON.stringify(body), headers: { 'Idempotency-Key': once } })).data,
  /** @param {string} id @param {Record<string, unknown>} body */
  changeKey: async (id, body) => (await call('PATCH', `api-keys/${encodeURIComponent(id)}`, { body: JSON.stringify(body) })).data,
  /** @param {string} id @param {Record<string, unknown>} body */
  rotateKey: async (id, body) => (await call('POST', `api-keys/${encodeURIComponent(id)}/rotate`, { body: JSON.stringify(body) })).data,
  /** @param {string} id @param {string} descendants */
  revokeKey: (id, descendants) => call('DELETE', `api-keys/${encodeURIComponent(id)}`, { query: { descendants } }),
  /** @param {AbortSignal} [signal] */
  usage: (signal) => get('usage', {}, signal),
  /** A CSV file that takes the key as a header, so no plain link can fetch it. @param {string} path @param {Parameters} query */
  csv: async (path, query) => (await read('GET', path, { query: { ...query, format: 'csv' }, patience: 0 }, (answer) => answer.blob())).body,
  /** @param {string} id @param {Parameters} [options] */
  qr: (id, { format = 'svg', ...options } = {}) => address(`${encodeURIComponent(id)}/qr`, { format, ...options }),
  /** Why a QR code is refused. @param {string} href */
  async qrFault(href) {
    try {
      const response = await fetch(href, { cache: 'no-store' });
      return response.ok ? null : refusal(response, await response.text());
    } catch (cause) {
      return noAnswer(cause);
    }
  },
};

/** The paths of the exports. */
export const exportPaths = {
  links: 'exports/links',
  /** @param {string | null} id */
  series: (id) => `${scopeOf(id)}analytics/series`,
  /** @param {string | null} id */
  breakdown: (id) => `${scopeOf(id)}analytics/breakdown`,
};
