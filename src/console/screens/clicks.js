// The clicks of a link: figures with a live count, a plot over a range, breakdowns.
import { html, useEffect, useRef, useState } from '../html.js';
import { api, exportPaths } from '../api.js';
import { save } from '../csv.js';
import { useAction, useLoad } from '../load.js';
import { DAY_MS, fullDay, isoDay, labelOf, number, percent } from '../format.js';
import { refine } from '../router.js';
import { session } from '../session.js';
import { follow } from '../stream.js';
import { Button, Choice, Empty, Fault, Select, Skeleton } from '../ui.js';
import { BarList, Bars, BarsTable } from '../plots.js';

/** @typedef {import('../plots.js').Bar} Bar */
/** What is asked of the series, and how its bars are called. @typedef {{unit: string, from?: string, until?: string}} Range */

export const RANGES = [['24h', '24 h'], ['7', '7 days'], ['', '30 days'], ['90', '90 days'], ['365', 'Year'], ['all', 'All'], ['custom', 'Dates']];

const today = () => Math.floor(Date.now() / DAY_MS) * DAY_MS;

/** @param {URLSearchParams} query @param {string} created @returns {Range} */
export function rangeOf(query, created) {
  const back = (/** @type {number} */ days) => isoDay(today() - (days - 1) * DAY_MS);
  const range = query.get('range') ?? '';
  if (range === '24h') return { unit: 'hour', from: new Date(Math.floor(Date.now() / 3_600_000) * 3_600_000 - 23 * 3_600_000).toISOString() };
  if (range === '7' || range === '90') return { unit: 'day', from: back(Number(range)) };
  if (range === '365') return { unit: 'week', from: back(365) };
  const from = range === 'all' ? created.slice(0, 10) : range === 'custom' ? (query.get('from') || back(30)) : back(30);
  const until = range === 'custom' ? (query.get('until') ?? '') : '';
  const days = ((until ? Date.parse(until) : today() + DAY_MS) - Date.parse(from)) / DAY_MS;
  return { unit: days <= 92 ? 'day' : days <= 731 ? 'week' : 'month', from, ...(until && { until: isoDay(Date.parse(until) + DAY_MS) }) };
}

/** How long no hit must come before the count is compared with the service's, how often that is done at most, and how often without a
 * stream. A stream is complete from two seconds after its beginning on: what came before it, the service's count has. */
const [QUIET_MS, RESYNC_MS, POLL_MS, SETTLE_MS] = [3000, 10_000, 5000, 2500];

/** The total as it grows: hits of the stream, and the summary from time to time.
 * @param {string} id @param {any} data @param {string} bots */
function useLive(id, data, bots) {
  const [state, setState] = useState('');
  const [more, setMore] = useState(0);
  const [summary, setSummary] = useState(/** @type {any} */ (undefined));
  // The stream has all hits: it goes on while bots are shown or not.
  const filter = useRef(bots);
  filter.current = bots;
  useEffect(() => {
    setMore(0);
    setSummary(undefined);
  }, [data, bots]);
  useEffect(() => {
    const abort = new AbortController();
    const { signal } = abort;
    let [timer, last, isLive] = [0, 0, false];
    const resync = async () => {
      last = Date.now();
      const asked = filter.current;
      try {
        const now = await api.summary(id, { bots: asked }, signal);
        if (signal.aborted || filter.current !== asked) return;
        setSummary(now);
        setMore(0);
      } catch {
        // The next one may succeed.
      }
    };
    const resyncIn = (/** @type {number} */ ms) => {
      clearTimeout(timer);
      timer = setTimeout(resync, ms);
    };
    const onHits = (/** @type {import('../stream.js').Hit[]} */ hits, /** @type {number} */ skipped) => {
      const seen = hits.filter(({ bot }) => filter.current === '' || (filter.current === 'exclude') === !bot);
      setMore((n) => n + seen.length + skipped);
      resyncIn(Math.max(QUIET_MS, last + RESYNC_MS - Date.now()));
    };
    const poll = setInterval(() => isLive || document.hidden || session.ended || resync(), POLL_MS);
    // After the screen has what it needs: the stream is one more request.
    const start = setTimeout(() => follow(id, signal, onHits, (next) => {
      if (signal.aborted) return;
      isLive = next === 'live';
      setState(next);
      if (isLive) resyncIn(SETTLE_MS);
    }), 400);
    return () => {
      abort.abort();
      clearInterval(poll);
      for (const one of [start, timer]) clearTimeout(one);
    };
  }, [id, session.key]);
  const base = summary ?? data;
  const grown = base.total_hits + more - data.total_hits;
  return { state, total: base.total_hits + more, last7: base.last_7_days + more, last30: summary ? summary.last_30_days + more : undefined, grown: Math.max(0, grown) };
}

/** @param {{label: string, value: string, note?: any, children?: any}} props */
const Figure = ({ label, value, note, children }) => html`<div><dt class="figure-label">${label}${children}</dt><dd class="figure">${value}${note && html` <span>${note}</span>`}</dd></div>`;

/** @param {{data: any, live: ReturnType<typeof useLive>}} props */
function Figures({ data, live }) {
  const days = data.daily.map((/** @type {{count: number}} */ { count }) => count);
  const sum = (/** @type {number[]} */ counts) => counts.reduce((total, count) => total + count, 0);
  const before = sum(days.slice(-14, -7));
  const change = before ? data.last_7_days / before - 1 : null;
  return html`
    <dl class="figures">
      <${Figure} label="All clicks" value=${number(live.total)}>${live.state === 'live' && html`<span class="live"><i></i>live</span>`}<//>
      <${Figure} label="Today" value=${number(days[days.length - 1] + live.grown)} />
      <${Figure} label="Last 7 days" value=${number(live.last7)} note=${change === null ? null : html`<b class=${change > 0 ? 'rise' : 'fall'} title="Compared with the seven days before">${change === 0 ? 'same' : `${change < 0 ? '−' : '+'}${percent(Math.abs(change))}`}<span class="vh"> compared with the seven days before</span></b>`} />
      <${Figure} label="Last 30 days" value=${number(live.last30 ?? sum(days) + live.grown)} />
    </dl>
  `;
}

const BOTS = [['', 'With bots'], ['exclude', 'Without'], ['only', 'Only bots']];

/** @param {{what: string}} props */
const Unavailable = ({ what }) => html`<p class="soft none" role="status">This version of the service does not have ${what}.</p>`;

/** @param {{id: string, created: string, query: URLSearchParams, data: any, grown: number}} props */
function Plot({ id, created, query, data, grown }) {
  const chosen = query.get('range') ?? '';
  const range = rangeOf(query, created);
  const bots = query.get('bots') ?? '';
  // The analytics have the last 30 days, so that the usual view takes no request of its own.
  const isKnown = chosen === '' || chosen === '7';
  const asked = { from: range.from, until: range.until, interval: range.unit, bots };
  const series = useLoad(async (signal) => (isKnown ? undefined : api.series(id, asked, signal)), [id, chosen, bots, range.from, range.until]);
  const download = useAction(async () => save(await api.csv(exportPaths.series(id), asked), `${id}.csv`));
  const known = data.daily.map(({ date, count }) => ({ start: date, count })).slice(chosen === '7' ? -7 : -30);
  const isOver = range.until !== undefined && Date.parse(range.until) <= Date.now();
  /** @type {Bar[] | undefined} */
  const read = isKnown ? known : series.data?.points;
  const bars = read && !isOver && grown > 0 ? read.map((bar, i) => (i === read.length - 1 ? { ...bar, count: bar.count + grown } : bar)) : read;
  if (series.error?.isUnavailable && !isKnown) return html`<${Unavailable} what="other ranges than 7 and 30 days" />`;
  if (series.error && !isKnown) return html`<${Fault} error=${series.error} onRetry=${series.reload} />`;
  if (!bars) return html`<${Skeleton} rows=${4} />`;
  if (data.total_hits + grown === 0) return html`<${Empty} title="No clicks yet">The first one shows here within two seconds.<//>`;
  if (!bars.length) return html`<p class="soft none">No time between these dates.</p>`;
  return html`
    <${Bars} bars=${bars} unit=${range.unit} isOver=${isOver} />
    <${BarsTable} bars=${bars} unit=${range.unit}>
      <div class="buttons"><${Button} icon="save" onClick=${() => download.run()}>CSV<//></div>
      ${download.error && (download.error.isUnavailable ? html`<${Unavailable} what="series as CSV" />` : html`<${Fault} error=${download.error} />`)}
    <//>
  `;
}

/** @param {{query: URLSearchParams}} props */
function Dates({ query }) {
  const set = (name) => (event) => refine({ [name]: event.target.value });
  return html`
    <div class="dates">
      <label>From <input type="date" value=${query.get('from') ?? isoDay(today() - 29 * DAY_MS)} onChange=${set('from')} /></label>
      <label>to <input type="date" value=${query.get('until') ?? isoDay(today())} onChange=${set('until')} /></label>
    </div>
  `;
}

/** A dimension of the breakdowns, its name, and where the analytics have it. @type {Record<string, [string, string?]>} */
const DIMENSIONS = {
  referrer: ['Sites', 'referrers'], utm_source: ['Source (UTM)'], utm_medium: ['Medium (UTM)'], utm_campaign: ['Campaign (UTM)'], utm_term: ['Term (UTM)'], utm_content: ['Content (UTM)'],
  country: ['Countries', 'countries'], region: ['Regions', 'regions'], city: ['Cities', 'cities'],
  device: ['Devices', 'devices'], browser: ['Browsers'], os: ['Systems'], language: ['Languages'], destination: ['Destinations'], bot: ['Bots'],
};

const PANELS = [
  ['Referrers', ['referrer', 'utm_source', 'utm_medium', 'utm_campaign', 'utm_term', 'utm_content']],
  ['Places', ['country', 'region', 'city']],
  ['Devices', ['device', 'browser', 'os', 'language', 'destination', 'bot']],
];

/** @param {any} data @returns {import('../plots.js').Row[]} */
const withRest = (data) => [
  ...data.labels,
  ...[['Others', data.other], ['Not told', data.none], ['Private', data.private], ['Further labels', data.more]].filter(([, count]) => count > 0).map(([label, count]) => ({ label, count, rest: true })),
];

/** A breakdown begins and ends with a day of the last 90, or with a month: other ends are moved outwards.
 * @param {Range} range @returns {{from: string, until?: string}} */
export function breakdownRange({ from = '', until }) {
  const tomorrow = today() + DAY_MS;
  const isKept = (/** @type {number} */ day) => day >= tomorrow - 90 * DAY_MS || new Date(day).getUTCDate() === 1;
  const monthOf = (/** @type {number} */ day, /** @type {number} */ later) => Date.UTC(new Date(day).getUTCFullYear(), new Date(day).getUTCMonth() + later, 1);
  const first = Date.parse(from.slice(0, 10));
  const last = until ? Date.parse(until.slice(0, 10)) : tomorrow;
  const end = isKept(last) ? last : monthOf(last, 1);
  return { from: isoDay(isKept(first) ? first : monthOf(first, 0)), ...(end < tomorrow && { until: isoDay(end) }) };
}

/** @param {{id: string, title: string, dimensions: string[], data: any, bots: string, range?: Range}} props */
function Breakdown({ id, title, dimensions, data, bots, range }) {
  const [dimension, setDimension] = useState(dimensions[0]);
  const [limit, setLimit] = useState(10);
  const [name, place] = DIMENSIONS[dimension];
  const known = place && !range && limit === 10 ? data[place] : undefined;
  const span = range && breakdownRange(range);
  const more = useLoad(async (signal) => (known ? undefined : api.breakdown(id, { dimension, limit, bots, ...span }, signal)), [id, dimension, limit, bots, span?.from, span?.until, Boolean(known)]);
  const rows = known ?? (more.data?.dimension === dimension ? withRest(more.data) : undefined);
  const isCut = limit < 1000 && dimension !== 'device' && (known ? known.length === 10 : (more.data?.more ?? 0) > 0);
  return html`
    <section class="panel">
      <header class="tools"><h2>${title}</h2>
        <${Select} aria-label=${`${title} by`} value=${dimension} onChange=${(next) => { setDimension(next); setLimit(10); }} options=${dimensions.map((one) => [one, DIMENSIONS[one][0]])} />
      </header>
      ${!known && more.error && (more.error.isUnavailable ? html`<${Unavailable} what="this breakdown" />` : html`<${Fault} error=${more.error} onRetry=${more.reload} />`)}
      ${!rows && !more.error && html`<${Skeleton} rows=${4} />`}
      ${rows && html`
        <${BarList} rows=${rows} total=${known ? data.total_hits : more.data.total} name=${(label) => labelOf(dimension, label)} label=${name} />
        ${isCut && html`<button type="button" class="plain" onClick=${() => setLimit(limit === 10 ? 100 : 1000)}>Show more</button>`}
      `}
    </section>
  `;
}

/** The days that the breakdowns count. @param {{from: string, until?: string}} span */
const spanText = ({ from, until }) => `${fullDay(from)} to ${until ? fullDay(Date.parse(until) - DAY_MS) : 'now'}, UTC`;

/** @param {{id: string, query: URLSearchParams, data: any, range: Range}} props */
function Breakdowns({ id, query, data, range }) {
  const isRange = query.get('scope') === 'range';
  return html`
    <div class="tools breakdown-tools">
      <h2>Where from, and with what</h2>
      ${isRange && html`<p class="soft small">${spanText(breakdownRange(range))}</p>`}
      <${Choice} label="Time of the breakdowns" path=${['links', id]} query=${query} name="scope" value=${isRange ? 'range' : ''} options=${[['', 'All time'], ['range', 'Range above']]} />
    </div>
    <div class="three">
      ${PANELS.map(([title, dimensions]) => html`<${Breakdown} key=${title} id=${id} title=${title} dimensions=${dimensions} data=${data} bots=${query.get('bots') ?? ''} range=${isRange ? range : undefined} />`)}
    </div>
  `;
}

/** @param {{id: string, created: string, query: URLSearchParams, data: any, reload: () => void}} props */
function Counted({ id, created, query, data, reload }) {
  const live = useLive(id, data, query.get('bots') ?? '');
  const isFirst = data.total_hits === 0 && live.total > 0;
  useEffect(() => {
    // The breakdowns have something to show now.
    const timer = isFirst ? setTimeout(reload, 2000) : 0;
    return () => clearTimeout(timer);
  }, [isFirst]);
  return html`
    <${Figures} data=${data} live=${live} />
    <div class="tools plot-tools">
      <p class="soft small">Clicks per ${rangeOf(query, created).unit}, UTC · dashed: so far</p>
      <${Choice} label="Range" path=${['links', id]} query=${query} name="range" value=${query.get('range') ?? ''} options=${RANGES} />
    </div>
    ${query.get('range') === 'custom' && html`<${Dates} query=${query} />`}
    <${Plot} id=${id} created=${created} query=${query} data=${data} grown=${live.grown} />
  `;
}

/** @param {any} error @param {string} bots */
const knowsNoBots = (error, bots) => bots !== '' && error?.errors?.some(({ parameter }) => parameter === 'bots');

/** The analytics of a link, and what shows them: beside the QR code, and below. @param {string} id @param {string} created @param {URLSearchParams} query */
export function useClicks(id, created, query) {
  const bots = query.get('bots') ?? '';
  const seen = useRef(0);
  const stats = useLoad(async (signal) => (session.may('analytics:read') ? api.analytics(id, { bots }, signal) : undefined), [id, bots]);
  useEffect(() => {
    // A page that was hidden for long shows old figures.
    const back = () => {
      if (document.hidden) seen.current = Date.now();
      else if (seen.current && Date.now() - seen.current > 60_000) stats.reload();
    };
    document.addEventListener('visibilitychange', back);
    return () => document.removeEventListener('visibilitychange', back);
  }, []);
  useEffect(() => {
    // The last bar is today's: at midnight, UTC, another day begins.
    const timer = stats.data ? setTimeout(stats.reload, today() + DAY_MS - Date.now() + 2000) : 0;
    return () => clearTimeout(timer);
  }, [stats.data]);
  const error = stats.error;
  const main = html`
    <section class="panel" aria-labelledby="clicks-title">
      <header class="tools clicks-head"><h2 id="clicks-title">Clicks</h2>
        ${error?.slug !== 'untracked-link' && html`<${Choice} label="Bots" path=${['links', id]} query=${query} name="bots" value=${bots} options=${BOTS} />`}
      </header>
      ${error?.slug === 'untracked-link' && html`<${Empty} title="Clicks of this link are not kept">It was created without tracking. It redirects, fires its webhooks and counts in the usage of its key.<//>`}
      ${knowsNoBots(error, bots) ? html`<${Unavailable} what="clicks without bots" />` : error && error.slug !== 'untracked-link' && html`<${Fault} error=${error} onRetry=${stats.reload} />`}
      ${!stats.data && !error && html`<${Skeleton} />`}
      ${stats.data && !error && html`<${Counted} id=${id} created=${created} query=${query} data=${stats.data} reload=${stats.reload} />`}
    </section>
  `;
  const below = stats.data && !error && stats.data.total_hits > 0 && html`<${Breakdowns} id=${id} query=${query} data=${stats.data} range=${rangeOf(query, created)} />`;
  return { main, below };
}
