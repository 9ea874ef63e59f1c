// The webhooks of a link: their state, their deliveries, tests and replays.
import { html, useEffect, useLayoutEffect, useRef, useState } from '../html.js';
import { api } from '../api.js';
import { useAction, useLoad } from '../load.js';
import { bare, clock, counted, moment, number } from '../format.js';
import { session } from '../session.js';
import { Button, Choice, Dialog, Empty, Fault, Field, More, Pill, Select, Skeleton, Submit, Theirs, When } from '../ui.js';

/** @type {Record<string, string>} */
const KINDS = { delivered: 'ok', failed: 'bad', pending: 'warn' };
const DELIVERY_STATUSES = [['', 'All'], ['failed', 'Failed'], ['pending', 'Pending'], ['delivered', 'Delivered']];

/** @param {{result: any}} props */
const Tested = ({ result }) => html`
  <p class="small tested">Test: <${Pill} kind=${KINDS[result.status] ?? ''}>${result.status}<//> ${result.error ?? `answered ${result.response_status}`} <span class="soft">in ${number(result.duration_ms)} ms</span></p>
`;

/** @param {{hook: any, result?: any, mayAct: boolean, busy: boolean, onTest: () => void}} props */
const Hook = ({ hook, result, mayAct, busy, onTest }) => html`
  <li>
    <div>
      <code><${Theirs}>${hook.url}<//></code>
      <p class="small">
        <span class="tally ok">${number(hook.delivered)} delivered</span>
        ${hook.pending > 0 && html`<span class="tally warn">${number(hook.pending)} pending</span>`}
        ${hook.failed > 0 && html`<span class="tally bad">${number(hook.failed)} failed</span>`}
        <span class="soft">last attempt <${When} at=${hook.last_attempt_at} />${hook.last_error && html`: ${hook.last_error}`}</span>
      </p>
      ${hook.suspended_at && html`<p class="small"><${Pill} kind="bad">suspended<//> since <${When} at=${hook.suspended_at} />: nothing is sent until a test succeeds or the link is changed.</p>`}
      <div role="status">${result && html`<${Tested} result=${result} />`}</div>
    </div>
    ${mayAct && html`<${Button} icon="send" onClick=${onTest} aria-disabled=${busy ? 'true' : undefined}>Test<span class="vh"> ${hook.url}</span><//>`}
  </li>
`;

const SINCE = [['3600', 'the last hour'], ['86400', 'the last day'], ['604800', 'the last 7 days'], ['2592000', 'the last 30 days']];

/** @param {{id: string, urls: string[], onClose: () => void, onDone: (text: string) => void}} props */
function Replay({ id, urls, onClose, onDone }) {
  const [form, setForm] = useState({ since: '86400', status: 'failed', url: '' });
  const [queued, setQueued] = useState(0);
  const [rest, setRest] = useState(/** @type {any} */ (undefined));
  const set = (name) => (value) => {
    setForm({ ...form, [name]: value });
    setRest(undefined);
  };
  const isClosed = useRef(false);
  useLayoutEffect(() => () => {
    isClosed.current = true;
  }, []);
  // Goes on where a refusal, of the rate limit for one, has stopped it.
  const action = useAction(async () => {
    let body = rest ?? { since: new Date(Date.now() - Number(form.since) * 1000).toISOString(), status: form.status, ...(form.url && { url: form.url }) };
    let sum = rest ? queued : 0;
    for (;;) {
      setRest(body);
      const page = await api.replay(id, body);
      sum += page.queued;
      setQueued(sum);
      if (page.next_cursor === null) break;
      if (isClosed.current) return onDone(`Stopped: ${number(sum)} queued again.`);
      body = { ...body, cursor: page.next_cursor };
    }
    onDone(sum ? `${counted(sum, 'delivery', 'deliveries')} queued again.` : 'There was nothing to replay.');
  });
  const pick = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string[][]} */ options) => html`
    <${Field} label=${label}>${(wiring) => html`<${Select} ...${wiring} options=${options} value=${/** @type {any} */ (form)[name]} onChange=${set(name)} />`}<//>
  `;
  return html`
    <${Dialog} title="Replay deliveries" onClose=${onClose}>
      ${(close) => html`
        <form onSubmit=${async (event) => { event.preventDefault(); if (await action.run()) close(); }}>
          <p>They are sent again with the same ids and bodies. Each counts in the monthly quota of deliveries.</p>
          ${pick('status', 'Which', [['failed', 'Failed ones'], ['delivered', 'Delivered ones'], ['any', 'All']])}
          ${pick('since', 'Of clicks in', SINCE)}
          ${urls.length > 1 && pick('url', 'To', [['', 'all webhooks'], ...urls.map((url) => [url, bare(url)])])}
          <p role="status">${action.busy || rest ? `${number(queued)} queued so far` : ''}</p>
          ${action.error && html`<${Fault} error=${action.error} />`}
          <div class="buttons end"><${Button} onClick=${close}>Cancel<//><${Submit} busy=${action.busy} error=${action.error} busyText="Queueing…">${rest ? 'Go on' : 'Replay'}<//></div>
        </form>
      `}
    <//>
  `;
}

/** @param {{rows: any[], mayAct: boolean, busy: boolean, onReplay: (one: any) => void}} props */
const Deliveries = ({ rows, mayAct, busy, onReplay }) => html`
  <table class="deliveries">
    <thead><tr><th scope="col">Status</th><th scope="col">Queued</th><th scope="col">To</th><th scope="col">Answer</th><th scope="col" class="num">Attempts</th><th scope="col"><span class="vh">Actions</span></th></tr></thead>
    <tbody>${rows.map((one) => html`
      <tr key=${one.hit_id + one.url}>
        <td><${Pill} kind=${KINDS[one.status] ?? ''}>${one.status}<//></td>
        <td><time datetime=${one.created_at} title=${moment(one.created_at)}>${clock(one.created_at)}</time></td>
        <td class="to" title=${`${one.url}\nhit ${one.hit_id}`}><${Theirs}>${bare(one.url)}<//></td>
        <td>${one.error ?? one.response_status ?? html`<span class="soft">waiting</span>`}${one.next_attempt_at && html` <span class="soft">next <${When} at=${one.next_attempt_at} /></span>`}</td>
        <td class="num">${one.attempts}</td>
        <td class="num">${mayAct && one.status !== 'pending' && html`<button type="button" class="plain" aria-disabled=${busy ? 'true' : undefined} onClick=${() => onReplay(one)}>Replay<span class="vh"> the delivery of ${clock(one.created_at)} to ${bare(one.url)}</span></button>`}</td>
      </tr>
    `)}</tbody>
  </table>
`;

const LOOK_MS = 3000;

/** How many deliveries a page has, and how many one call can read. */
const [PAGE, MOST_READ] = [25, 100];

/** @param {{link: import('../api.js').LinkRecord, query: URLSearchParams}} props */
export function Webhooks({ link, query }) {
  const id = link.short_id;
  const status = query.get('deliveries') ?? '';
  const [tests, setTests] = useState(/** @type {Record<string, any>} */ ({}));
  const [replaying, setReplaying] = useState(false);
  const [notice, setNotice] = useState('');
  // Those that are shown are read again, so that none of them stays as it was.
  const limit = useRef(PAGE);
  const list = useLoad(async (signal) => ({ ...(await api.deliveries(id, { status, limit: limit.current }, signal)), of: status }), [id, status, link.revision]);
  const shown = list.data?.of === status ? list.data.deliveries.length : 0;
  limit.current = Math.min(MOST_READ, Math.max(PAGE, shown));
  const more = useAction(async () => {
    const cursor = list.data?.next_cursor;
    const page = await api.deliveries(id, { status, limit: PAGE, cursor });
    // Where the list has begun anew meanwhile, this page does not follow its end.
    list.change((data) => (data.of === status && data.next_cursor === cursor ? { ...data, deliveries: [...data.deliveries, ...page.deliveries], next_cursor: page.next_cursor } : data));
  });
  const test = useAction(async (/** @type {string | undefined} */ url) => {
    const { results } = await api.test(id, url);
    setTests((last) => ({ ...last, ...Object.fromEntries(results.map((result) => [result.url, result])) }));
    // A success ends a suspension.
    list.reload();
  });
  const again = useAction(async (/** @type {any} */ one) => {
    await api.replay(id, { hit_id: one.hit_id, url: one.url });
    setNotice('Queued again.');
    list.reload();
  });
  // More rows than one call reads are read again by hand alone.
  const hasPending = shown <= MOST_READ && list.data?.deliveries.some((one) => one.status === 'pending');
  useEffect(() => {
    if (!hasPending) return undefined;
    const look = () => document.hidden || list.reload();
    const timer = setTimeout(look, LOOK_MS);
    document.addEventListener('visibilitychange', look);
    return () => {
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', look);
    };
  }, [list.data]);
  if (list.error && !list.data) return html`<section class="panel"><h2>Webhooks</h2><${Fault} error=${list.error} onRetry=${list.reload} /></section>`;
  if (!list.data) return html`<section class="panel"><${Skeleton} rows=${4} /></section>`;
  const { webhooks, deliveries, next_cursor: next } = list.data;
  if (!webhooks.length && !deliveries.length) {
    return html`<section class="panel"><${Empty} title="No webhooks">Edit the link to give it some: each click is then posted there, signed.<//></section>`;
  }
  const mayAct = session.may('webhooks:write');
  const current = new Set(link.webhooks);
  return html`
    <section class="panel" aria-labelledby="hooks-title">
      <header class="tools"><h2 id="hooks-title">Webhooks</h2>${mayAct && current.size > 1 && html`<${Button} icon="send" onClick=${() => test.run(undefined)} aria-disabled=${test.busy ? 'true' : undefined}>Test all<//>`}</header>
      <ul class="hooks">${webhooks.map((hook) => html`<${Hook} key=${hook.url} hook=${hook} result=${tests[hook.url]} mayAct=${mayAct && current.has(hook.url)} busy=${test.busy} onTest=${() => test.run(hook.url)} />`)}</ul>
      <p role="status" class="soft small">${test.busy ? 'Testing: this takes at most 10 seconds.' : ''}</p>
      ${test.error && html`<${Fault} error=${test.error} />`}
    </section>
    <section class="panel" aria-labelledby="deliveries-title">
      <header class="tools">
        <h2 id="deliveries-title" tabindex="-1">Deliveries</h2>
        <${Choice} label="Which deliveries" path=${['links', id, 'webhooks']} query=${query} name="deliveries" value=${status} options=${DELIVERY_STATUSES} />
        ${mayAct && html`<${Button} icon="turn" onClick=${() => setReplaying(true)}>Replay…<//>`}
        <${Button} onClick=${list.reload}>Refresh<//>
      </header>
      <p role="status" class="soft small">${notice}</p>
      ${[again.error, more.error, list.error].filter(Boolean).map((error, i) => html`<${Fault} key=${i} error=${error} />`)}
      ${deliveries.length === 0 ? html`<p class="soft none">No ${status} deliveries in the last 30 days.</p>` : html`<${Deliveries} rows=${deliveries} mayAct=${mayAct} busy=${again.busy} onReplay=${again.run} />`}
      ${next && html`<div class="after"><${More} onClick=${() => more.run()} loading=${more.busy} /></div>`}
    </section>
    ${replaying && html`<${Replay} id=${id} urls=${[...current]} onClose=${() => setReplaying(false)} onDone=${(text) => { setNotice(text); list.reload(); }} />`}
  `;
}
