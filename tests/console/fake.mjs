// A fake of the API with state. Only what the console's tests need; the real program is tested with the same console besides.
// States that are rare are set by tests: `rules` decide about requests before anything else.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { SOURCES } from './files.mjs';

const { members } = await import(`data:text/javascript;base64,${readFileSync(join(SOURCES, 'json.js')).toString('base64')}`);
const DAY = 86_400_000;
const SCOPES = ['links:write', 'links:read', 'analytics:read', 'usage:read', 'webhooks:read', 'webhooks:write', 'keys:manage'];
/** The fields of a creation; of these, `slug` and `tracked` can't be changed. */
const WRITABLE = [
  'redirect_url', 'data', 'webhooks', 'tracked', 'slug', 'title', 'tags', 'notes', 'archived', 'expires_at', 'not_before', 'fallback_url', 'redirect_status', 'cache_seconds', 'preview', 'skip_bots',
];
const iso = (at) => new Date(at).toISOString();
const uuid = (n) => `019aa54c-3f1c-7a60-9f43-${String(n).padStart(12, '0')}`;
const TITLES = {
  400: ['malformed-body', 'Malformed body'], 401: ['unauthorized', 'Unauthorized'], 403: ['forbidden', 'Forbidden'], 404: ['not-found', 'Not found'],
  409: ['slug-taken', 'Slug taken'], 412: ['precondition-failed', 'Precondition failed'], 422: ['validation', 'Validation failed'], 429: ['rate-limited', 'Rate limit reached'],
  500: ['internal', 'Internal error'], 503: ['unavailable', 'Unavailable'],
};

export function problem(status, detail, more = {}) {
  const { slug = TITLES[status][0], headers = {}, ...members } = more;
  const body = { type: `urn:problem-type:signpost:${slug}`, title: TITLES[status]?.[1] ?? slug, status, detail, ...members };
  return { status, headers: { 'content-type': 'application/problem+json', 'x-request-id': 'rq-test', ...headers }, body };
}
export const limited = (seconds) => problem(429, `The rate limit is reached; retry after ${seconds} s.`, { headers: { 'retry-after': String(seconds) } });
const ok = (body, headers = {}, status = 200) => ({ status, body, headers });
const missing = () => problem(404, 'Unknown link.');
const unknownPath = () => problem(404, 'Unknown path. See GET /docs.');

export class Fake {
  constructor() {
    this.secret = `sp_${'F'.repeat(43)}`;
    this.base = '';
    this.reset();
  }

  reset() {
    this.now = Date.now();
    this.rules = [];
    this.log = [];
    this.streams = new Set();
    this.once = new Map();
    this.links = [];
    this.limit = null;
    this.created = 0;
    this.series = true;
    this.suspended = undefined;
    this.keys = [this.key({ name: 'web shop', prefix: 'sp_FFFFF', tier: 'Pro', scopes: SCOPES, secret: this.secret, created_by: uuid(1) })];
    this.hooks = new Map();
  }

  /** The answer to one request that matches waits until the returned function is called. */
  hold(method, path) {
    let release;
    const released = new Promise((done) => (release = done));
    this.rule(method, path, () => released, 1);
    return release;
  }

  /** Answers requests that match, `times` times. `answer` is an answer, "hang", "drop", or a function. */
  rule(method, path, answer, times = Infinity) {
    this.rules.push({ method, path, answer, times });
  }

  key(more) {
    this.count = (this.count ?? 1) + 1;
    return { key_id: uuid(this.count), prefix: `sp_${this.count}xxxx`.slice(0, 8), tier: 'Free', scopes: SCOPES, created_at: iso(this.now - 41 * DAY), expires_at: null, last_used_at: iso(this.now - 4000), rotated_at: null, created_by: uuid(2), ...more };
  }

  link(more) {
    const short_id = more.slug ?? more.short_id ?? `L${String(this.links.length).padStart(6, '0')}`;
    const at = iso(this.now - this.links.length * 3_600_000);
    const link = {
      short_id, short_url: `${this.base}/${short_id}`, redirect_url: 'https://example.com/', created_at: at, data: '{}', slug: null, webhooks: [], tracked: true, title: null, tags: [],
      notes: null, archived: false, expires_at: null, not_before: null, fallback_url: null, redirect_status: 302, cache_seconds: 0,
      preview: true, skip_bots: false, block_reason: null, updated_at: at, revision: 1, state: 'active', days: Array(400).fill(0), ...more,
    };
    this.links.push(link);
    return link;
  }

  /** Links with clicks, as a shop has them. */
  fill() {
    let seed = 7;
    const random = () => ((seed = (seed * 1103515245 + 12345) & 0x7fffffff) / 0x7fffffff);
    const days = (level) => Array.from({ length: 400 }, () => Math.round(level * (0.6 + random() * 0.8)));
    this.link({ short_id: 'm1CoVi3', redirect_url: 'https://forms.example.net/feedback/Q4', days: [...Array(398).fill(0), 2, 1] });
    this.link({
      slug: 'autumn', short_id: 'autumn', title: 'Autumn sale', tags: ['mail', 'autumn'], redirect_url: 'https://shop.example.com/summer?ref=mail&utm_campaign=autumn-2026', days: days(412),
      data: '{"campaign":"autumn-2026","price":1.0,"id":12345678901234567890}', webhooks: ['https://hooks.example.com/clicks', 'https://crm.example.net/in/7f3a'],
    });
    this.link({ short_id: 'Hs9dPw5', tracked: false, redirect_url: 'https://app.example.com/invite/3f9c2a' });
    this.link({ short_id: 'old4321', archived: true, redirect_url: 'https://shop.example.com/spring', days: days(1) });
    this.hooks.set('autumn', Array.from({ length: 30 }, (_, i) => ({
      hit_id: uuid(900 + i), url: i % 3 === 1 ? 'https://crm.example.net/in/7f3a' : 'https://hooks.example.com/clicks', status: i % 4 === 2 ? 'failed' : 'delivered', attempts: i % 4 === 2 ? 3 : 1,
      response_status: i % 4 === 2 ? 500 : 200, error: i % 4 === 2 ? 'http 500' : null, created_at: iso(this.now - i * 60_000), updated_at: iso(this.now - i * 60_000), next_attempt_at: null,
    })));
    this.keys.push(this.key({ name: 'newsletter', scopes: SCOPES.slice(0, 3) }), this.key({ name: 'old deploy script', expires_at: iso(this.now - DAY), last_used_at: null }));
  }

  hit(id, bot = null) {
    const link = this.links.find(({ short_id }) => short_id === id);
    link.days[399] += 1;
    this.hits = (this.hits ?? 0) + 1;
    const data = { hit_id: uuid(5000 + this.hits), hit_at: iso(Date.now()), short_id: id, device: 'desktop', browser: 'chrome', os: 'linux', country: null, language: 'en', referrer: null, destination: 'default', bot };
    for (const stream of this.streams) if (stream.id === id) stream.response.write(`id: 0-${this.hits}\nevent: hit\ndata: ${JSON.stringify(data)}\n\n`);
  }

  async answer(request, response, url) {
    let body = '';
    for await (const part of request) body += part;
    const { pathname: path, searchParams: query } = new URL(url, 'http://fake');
    this.log.push({ method: request.method, path, query: Object.fromEntries(query), body, headers: request.headers });
    const rule = this.rules.find((one) => one.times > 0 && one.method === request.method && one.path.test(path));
    if (rule) rule.times -= 1;
    let answer = typeof rule?.answer === 'function' ? rule.answer({ path, query, body, request }) : rule?.answer;
    if (answer === 'hang') return;
    if (answer === 'lose') this.route(request, path, query, body, response);
    if (answer === 'lose' || answer === 'drop') {
      // A connection that ends before an answer begins is tried again by the browser itself.
      response.writeHead(200, { 'content-length': '1000' });
      response.write('{', () => response.destroy());
      return;
    }
    if (answer instanceof Promise) answer = await answer;
    answer ??= this.route(request, path, query, body, response);
    if (!answer) return;
    response.writeHead(answer.status, { 'content-type': 'application/json', 'cache-control': 'no-store', ...answer.headers });
    response.end(answer.body === undefined || typeof answer.body === 'string' || Buffer.isBuffer(answer.body) ? answer.body : JSON.stringify(answer.body));
  }

  route(request, path, query, body, response) {
    const [first, second, third, fourth] = path.slice(1).split('/');
    const { method } = request;
    if (second === 'qr') return this.qr(first, query);
    if (method === 'GET' && second === undefined && !['links', 'usage', 'api-keys', 'analytics'].includes(first)) return this.redirect(first);
    const caller = this.keys.find(({ secret }) => secret === request.headers['x-api-key']);
    if (!caller) return problem(401, 'The API key is missing, unknown, expired or revoked.');
    const refused = this.scope(method, first, second, third, caller);
    if (refused) return refused;
    const json = body ? JSON.parse(body) : {};
    if (first === 'shorten') return this.idempotent(request, body, () => (second ? this.bulk(json) : this.create(json, body)));
    if (first === 'usage') return ok({ api_key_id: caller.key_id, month: iso(this.now).slice(0, 7), usage: { links_created: { current: this.created, limit: this.limit }, hits_served: { current: 18_204, limit: null }, webhook_deliveries: { current: 962, limit: 1000 } } });
    if (first === 'api-keys') return this.apiKeys(request, second, third, json, body, query, caller);
    if (first === 'exports') return ok('short_id,short_url\r\n', { 'content-type': 'text/csv' });
    if (second === 'webhooks') return this.webhooks(first, third, json, query);
    if (first === 'analytics') return this.analytics(this.allLinks(), second, query);
    if (first !== 'links') return unknownPath();
    if (!second) return this.list(query);
    const link = this.links.find(({ short_id }) => short_id === second);
    if (!link) return missing();
    if (third === 'analytics') return this.analytics(link, fourth, query);
    if (third === 'hits') return this.stream(link, response);
    if (third === 'block' || third === 'unblock') return this.block(link, json.reason ?? null);
    return third ? unknownPath() : this.one(method, link, json, body, request);
  }

  scope(method, first, second, third, { scopes }) {
    const read = method === 'GET';
    const wanted = first === 'usage' ? 'usage:read' : first === 'api-keys' ? (second === 'self' || third === 'rotate' ? null : 'keys:manage')
      : first === 'analytics' ? 'analytics:read' : second === 'webhooks' ? (read ? 'webhooks:read' : 'webhooks:write') : third === 'analytics' || third === 'hits' ? 'analytics:read' : read ? 'links:read' : 'links:write';
    return wanted && !scopes.includes(wanted) ? problem(403, `This request needs an API key with the scope ${wanted}.`, { slug: 'scope-missing', scope: wanted }) : undefined;
  }

  record({ days: _, data, ...link }) {
    return `{${JSON.stringify(link).slice(1, -1)},"data":${data}}`;
  }

  block(link, reason) {
    Object.assign(link, { block_reason: reason, state: reason === null ? 'active' : 'blocked', revision: link.revision + 1 });
    return ok(this.record(link), { etag: `"${link.revision}"` });
  }

  redirect(id) {
    const link = this.links.find(({ short_id }) => short_id === id);
    if (!link) return problem(404, 'Unknown link.');
    this.hit(id);
    return { status: 302, headers: { location: link.redirect_url } };
  }

  qr(id, query) {
    if ((query.get('dark') ?? '#000000') === (query.get('light') ?? '#ffffff')) return problem(422, 'The request has a fault.', { errors: [{ parameter: 'dark', detail: 'is too close to light to be read' }] });
    return ok(readFileSync(join(SOURCES, 'icon.svg')), { 'content-type': 'image/svg+xml' });
  }

  idempotent(request, body, make) {
    const key = request.headers['idempotency-key'];
    const known = key && this.once.get(key);
    if (known) return known.body === body ? { ...known.answer, headers: { ...known.answer.headers, 'idempotent-replayed': 'true' }, body: known.replay ?? known.answer.body } : problem(422, 'This Idempotency-Key was used with another body.', { slug: 'idempotency-key-reused' });
    const answer = make();
    if (key && answer.status < 300) this.once.set(key, { body, answer, replay: answer.body.key ? { ...answer.body, key: null, webhook_secret: null } : undefined });
    return answer;
  }

  faults(json) {
    const errors = Object.keys(json).filter((name) => !WRITABLE.includes(name)).map((name) => ({ pointer: `/${name}`, detail: 'unknown field' }));
    const url = (text, pointer) => /^https?:\/\/[^/\s]+/i.test(text) || errors.push({ pointer, detail: 'must be an absolute http or https URL' });
    if ('redirect_url' in json) url(json.redirect_url ?? '', '/redirect_url');
    (json.webhooks ?? []).forEach((text, i) => url(text, `/webhooks/${i}`));
    if (json.slug !== undefined && !/^[\w-]{1,64}$/.test(json.slug)) errors.push({ pointer: '/slug', detail: 'must have only letters, digits, - and _' });
    if ((json.title ?? '').length > 200) errors.push({ pointer: '/title', detail: 'must have at most 200 characters' });
    return errors.length ? problem(422, 'The request has faults.', { errors }) : undefined;
  }

  create(json, body) {
    const fault = this.faults({ redirect_url: '', ...json });
    if (fault) return fault;
    if (this.limit !== null && this.created >= this.limit) return problem(403, 'Monthly link creation limit reached', { slug: 'link-quota-exceeded', limit: this.limit, current: this.created });
    if (this.links.some(({ short_id }) => short_id === json.slug)) return problem(409, 'This name is taken.');
    this.created += 1;
    const data = /"data":(\{.*\})/.exec(body)?.[1];
    const link = this.link({ ...json, short_id: json.slug ?? `N${String(this.created).padStart(6, '0')}`, created_at: iso(Date.now()), data: data ?? '{}' });
    this.links.unshift(this.links.pop());
    const { short_id, short_url, redirect_url, created_at } = link;
    return ok({ short_id, short_url, redirect_url, created_at });
  }

  bulk({ links }) {
    const results = links.map((link) => {
      const answer = this.create(link, JSON.stringify(link));
      return answer.status === 200 ? { status: 200, link: answer.body } : { status: answer.status, problem: answer.body };
    });
    const created = results.filter(({ status }) => status === 200).length;
    return ok({ created, failed: results.length - created, results });
  }

  list(query) {
    const words = (query.get('q') ?? '').toLowerCase().split(' ').filter(Boolean);
    const archived = query.get('archived') ?? 'false';
    const found = this.links.filter((link) => {
      const text = `${link.short_id} ${link.title ?? ''} ${link.redirect_url} ${link.tags.join(' ')}`.toLowerCase();
      return (archived === 'any' || link.archived === (archived === 'true')) && words.every((word) => text.includes(word)) && (!query.get('tag') || link.tags.includes(query.get('tag')));
    });
    if (query.get('order') === 'oldest') found.reverse();
    const [from, limit] = [Number(query.get('cursor') ?? 0), Number(query.get('limit') ?? 25)];
    const sum = (counts) => counts.reduce((total, count) => total + count, 0);
    const page = found.slice(from, from + limit).map(({ days, data: _, ...link }) => ({ ...link, hits: link.tracked ? { total: sum(days), last_7_days: sum(days.slice(-7)), daily: days.slice(-30) } : null }));
    return ok({ links: page, next_cursor: from + limit < found.length ? String(from + limit) : null });
  }

  one(method, link, json, body, request) {
    const etag = () => ({ etag: `"${link.revision}"` });
    if (method === 'GET') return ok(this.record(link), etag());
    const match = request.headers['if-match'];
    if (match && match !== etag().etag) return problem(412, 'The link was changed. Read it again.', { headers: etag() });
    if (method === 'DELETE') {
      this.links.splice(this.links.indexOf(link), 1);
      return { status: 204, headers: {} };
    }
    const fault = this.faults(json);
    if (fault) return fault;
    const { data, ...rest } = json;
    const blank = { ...this.link({}), short_id: undefined };
    this.links.pop();
    for (const [name, value] of Object.entries(rest)) link[name] = value ?? blank[name];
    if (data !== undefined) {
      // Numbers keep their text where they are not touched: the fake replaces only what the patch names.
      const kept = members(data === null ? '{}' : link.data);
      for (const [name, value] of Object.entries(data ?? {})) value === null ? kept.delete(name) : kept.set(name, JSON.stringify(value));
      link.data = `{${[...kept].map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(',')}}`;
    }
    link.revision += 1;
    link.updated_at = iso(Date.now());
    return ok(this.record(link), etag());
  }

  /** What analytics of all links of the key count. */
  allLinks() {
    const days = Array(400).fill(0).map((_, i) => this.links.reduce((sum, link) => sum + link.days[i], 0));
    return { tracked: true, days };
  }

  analytics(link, part, query) {
    if (!link.tracked) return problem(403, 'Clicks of this link are not kept.', { slug: 'untracked-link' });
    if (part && part !== 'summary' && !this.series) return unknownPath();
    const sum = (counts) => counts.reduce((total, count) => total + count, 0);
    const factor = query.get('bots') === 'exclude' ? 0.9 : query.get('bots') === 'only' ? 0.1 : 1;
    const days = link.days.map((count) => Math.round(count * factor));
    const today = Math.floor(Date.now() / DAY) * DAY;
    const total = sum(days);
    if (part === 'summary') return ok({ short_id: link.short_id, total_hits: total, last_7_days: sum(days.slice(-7)), last_30_days: sum(days.slice(-30)) });
    if (part === 'series') {
      const unit = { hour: 3_600_000, day: DAY, week: 7 * DAY, month: 30 * DAY }[query.get('interval') ?? 'day'];
      const from = Date.parse(query.get('from'));
      const count = Math.max(0, Math.ceil((Date.now() - from) / unit));
      return ok({ from: iso(from), until: iso(from + count * unit), interval: query.get('interval'), timezone: 'UTC', total, points: Array.from({ length: count }, (_, i) => ({ start: iso(from + i * unit), count: days[399 - (i % 400)] })) });
    }
    const share = (labels) => labels.map((label, i) => ({ label, count: Math.round(total / 2 ** (i + 1)) })).filter(({ count }) => count);
    if (part === 'breakdown') {
      const labels = share(query.get('dimension') === 'browser' ? ['chrome', 'safari', 'firefox'] : Array.from({ length: Number(query.get('limit')) }, (_, i) => `label ${i}`));
      return ok({ dimension: query.get('dimension'), total, other: 3, none: 2, private: 0, more: query.get('limit') === '10' ? 5 : 0, labels });
    }
    return ok({
      total_hits: total, last_7_days: sum(days.slice(-7)), daily: days.slice(-30).map((count, i) => ({ date: iso(today - (29 - i) * DAY).slice(0, 10), count })),
      referrers: share(['news.ycombinator.com', 'google.com', 't.co']), countries: share(['US', 'DE', 'GB']), regions: share(['California, US']), cities: share(['San Francisco, California, US']),
      devices: ['mobile', 'desktop', 'tablet'].map((label, i) => ({ label, count: i ? Math.round(total / 4) : total - 2 * Math.round(total / 4) })),
    });
  }

  stream(link, response) {
    if (!this.series) return unknownPath();
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    response.write(`retry: 3000\nid: 0-${this.hits ?? 0}\n\n`);
    const stream = { id: link.short_id, response };
    this.streams.add(stream);
    response.on('close', () => this.streams.delete(stream));
    return undefined;
  }

  webhooks(id, action, json, query) {
    const link = this.links.find(({ short_id }) => short_id === id);
    if (!link) return missing();
    const all = this.hooks.get(id) ?? [];
    if (action === 'test') {
      const urls = json.url ? [json.url] : link.webhooks;
      return ok({ results: urls.map((url, i) => ({ url, status: i ? 'failed' : 'delivered', response_status: i ? 500 : 204, error: i ? 'http 500' : null, duration_ms: 87 })) });
    }
    if (action === 'replay') {
      const some = all.filter((one) => (json.hit_id ? one.hit_id === json.hit_id : json.status === 'any' || one.status === (json.status ?? 'failed')));
      for (const one of some) Object.assign(one, { status: 'delivered', error: null, response_status: 200 });
      return ok({ queued: some.length, next_cursor: null }, {}, 202);
    }
    const of = (url, status) => all.filter((one) => one.url === url && one.status === status).length;
    const found = all.filter(({ status }) => !query.get('status') || status === query.get('status'));
    const [from, limit] = [Number(query.get('cursor') ?? 0), Number(query.get('limit') ?? 50)];
    return ok({
      short_id: id, next_cursor: from + limit < found.length ? String(from + limit) : null, deliveries: found.slice(from, from + limit),
      webhooks: link.webhooks.map((url) => ({ url, pending: of(url, 'pending'), delivered: of(url, 'delivered'), failed: of(url, 'failed'), last_attempt_at: all.length ? iso(this.now) : null, last_status: 200, last_error: all.find((one) => one.url === url && one.error)?.error ?? null, ...(this.suspended && { suspended_at: this.suspended }) })),
    });
  }

  apiKeys(request, id, action, json, body, query, caller) {
    const shown = ({ secret: _, ...record }) => record;
    if (id === 'self') return ok(shown(caller));
    if (!id && request.method === 'GET') return ok({ api_keys: this.keys.map(shown), next_cursor: null });
    if (!id) {
      return this.idempotent(request, body, () => {
        const made = this.key({ name: json.name, scopes: json.scopes, tier: json.tier ?? 'Free', expires_at: json.expires_at ?? null, last_used_at: null, secret: `sp_${String(this.keys.length).repeat(43).slice(0, 43)}` });
        this.keys.unshift(made);
        return ok({ key: made.secret, webhook_secret: 'whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=', ...shown(made) }, {}, 201);
      });
    }
    const key = this.keys.find(({ key_id }) => key_id === id);
    if (!key) return problem(404, 'Unknown key.');
    if (request.method === 'DELETE') {
      this.keys.splice(this.keys.indexOf(key), 1);
      return { status: 204, headers: {} };
    }
    if (action === 'rotate') {
      key.secret = `sp_${'R'.repeat(43)}`;
      return ok({ key: key.secret, ...(json.rotate_webhook_secret && { webhook_secret: 'whsec_ROTATED' }), ...shown(key) });
    }
    return ok(shown(Object.assign(key, json)));
  }
}
