// The clicks of a link: figures with a live count, a plot over a range, breakdowns.
import { html, useEffect, useRef, useState } from '../html.js';
import { api } from '../api.js';
import { useLoad } from '../load.js';
import { DAY_MS, number, percent } from '../format.js';
import { session } from '../session.js';
import { follow } from '../stream.js';
import { Empty, Fault, Skeleton, Unavailable } from '../ui.js';
import { Breakdowns } from './breakdowns.js';
import { BotsChoice, Plotted, RangeChoice, rangeOf, today, useSeries } from './series.js';

/** @typedef {import('../plots.js').Bar} Bar */

/** How long no hit must come before the count is compared with the service's, how often that is done at most, and how often without a
 * stream. A stream is complete from two seconds after its beginning on: what came before it, the service's count has. */
const [QUIET_MS, RESYNC_MS, POLL_MS, SETTLE_MS] = [3000, 10_000, 5000, 2500];

/** The total as it grows: hits of the stream, and the summary from time to time.
 * @param {string} id @param {any} data @param {string} bots */
function useLive(id, data, bots) {
  const [state, setState] = useState('');
  const [more, setMore] = useState(0);
  const count = useRef(0);
  count.current = more;
  const [summary, setSummary] = useState(/** @type {any} */ (undefined));
  // Grows where the total was not what the stream has told: then a series that was read before lacks hits, or has some twice.
  const [drifts, setDrifts] = useState(0);
  const reads = useRef({ data, count: 0 });
  if (reads.current.data !== data) reads.current = { data, count: reads.current.count + 1 };
  const base = summary ?? data;
  const expected = useRef(0);
  expected.current = base.total_hits + more;
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
    let [timer, last, since, isLive] = [0, 0, 0, false];
    const resync = async () => {
      last = Date.now();
      since = 0;
      const [asked, known, wanted] = [filter.current, count.current, expected.current];
      try {
        const now = await api.summary(id, { bots: asked }, signal);
        if (signal.aborted || filter.current !== asked) return;
        setSummary(now);
        if (now.total_hits !== wanted) setDrifts((n) => n + 1);
        // Hits that have come since it was asked for are not in it.
        setMore((n) => Math.max(0, n - known));
      } catch {
        // The next one may succeed.
      }
    };
    // Hits put it off, but not for ever.
    const resyncIn = (/** @type {number} */ ms) => {
      since ||= Date.now();
      clearTimeout(timer);
      timer = setTimeout(resync, Math.min(ms, since + RESYNC_MS - Date.now()));
    };
    const onHits = (/** @type {import('../stream.js').Hit[]} */ hits, /** @type {number} */ skipped) => {
      const seen = hits.filter(({ bot }) => filter.current === '' || (filter.current === 'exclude') === !bot);
      // How many of the skipped ones are bots' only the summary knows.
      setMore((n) => n + seen.length + (filter.current === '' ? skipped : 0));
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
  const grown = base.total_hits + more - data.total_hits;
  return { state, version: drifts + reads.current.count, total: base.total_hits + more, last7: base.last_7_days + more, last30: summary ? summary.last_30_days + more : undefined, grown: Math.max(0, grown) };
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

/** The clicks of a link. The analytics have the last 30 days, so that the usual view takes no request of its own. `isOld`: the analytics
 * are of another choice of bots.
 * @param {{id: string, created: string, query: URLSearchParams, data: any, isOld: boolean, live: ReturnType<typeof useLive>}} props */
function Plot({ id, created, query, data, isOld, live }) {
  const chosen = query.get('range') ?? '';
  const isKnown = chosen === '' || chosen === '7';
  const { range, asked, series, since, error, reload } = useSeries(id, created, query, isKnown || isOld, { count: live.total, version: live.version });
  const grown = isKnown ? live.grown : Math.max(0, live.total - since);
  if (error) return error.isUnavailable ? html`<${Unavailable} what="other ranges than 7 and 30 days" />` : html`<${Fault} error=${error} onRetry=${reload} />`;
  if (live.total === 0) return query.get('bots') ? html`<p class="soft none">No clicks of this kind.</p>` : html`<${Empty} title="No clicks yet">The first one shows here within two seconds.<//>`;
  /** @type {Bar[] | undefined} */
  const read = isKnown ? data.daily.map(({ date, count }) => ({ start: date, count })).slice(chosen === '7' ? -7 : -30) : series?.points;
  if (!read) return html`<${Skeleton} rows=${4} />`;
  const bars = range.until === undefined && grown > 0 ? read.map((bar, i) => (i === read.length - 1 ? { ...bar, count: bar.count + grown } : bar)) : read;
  return html`<${Plotted} id=${id} bars=${bars} range=${range} asked=${asked} />`;
}

/** @param {{id: string, created: string, query: URLSearchParams, data: any, isOld: boolean, reload: () => void}} props */
function Counted({ id, created, query, data, isOld, reload }) {
  const live = useLive(id, data, query.get('bots') ?? '');
  const isFirst = data.total_hits === 0 && live.total > 0;
  useEffect(() => {
    // The breakdowns have something to show now.
    const timer = isFirst ? setTimeout(reload, 2000) : 0;
    return () => clearTimeout(timer);
  }, [isFirst]);
  return html`
    <div aria-busy=${String(isOld)} class=${isOld ? 'old' : ''}><${Figures} data=${data} live=${live} /></div>
    <${RangeChoice} path=${['links', id]} created=${created} query=${query} />
    <div aria-busy=${String(isOld)} class=${isOld ? 'old' : ''}><${Plot} id=${id} created=${created} query=${query} data=${data} isOld=${isOld} live=${live} /></div>
  `;
}

/** @param {any} error @param {string} bots */
const knowsNoBots = (error, bots) => bots !== '' && error?.errors?.some(({ parameter }) => parameter === 'bots');

/** The analytics of a link, and what shows them: beside the QR code, and below. @param {string} id @param {string} created @param {URLSearchParams} query */
export function useClicks(id, created, query) {
  const bots = query.get('bots') ?? '';
  const seen = useRef(0);
  const stats = useLoad(async (signal) => (session.may('analytics:read') ? { bots, ...(await api.analytics(id, { bots }, signal)) } : undefined), [id, bots]);
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
        ${error?.slug !== 'untracked-link' && html`<${BotsChoice} path=${['links', id]} query=${query} />`}
      </header>
      ${error?.slug === 'untracked-link' && html`<${Empty} title="Clicks of this link are not kept">It was created without tracking. It redirects, fires its webhooks and counts in the usage of its key.<//>`}
      ${knowsNoBots(error, bots) ? html`<${Unavailable} what="clicks without bots" />` : error && error.slug !== 'untracked-link' && html`<${Fault} error=${error} onRetry=${stats.reload} />`}
      ${!stats.data && !error && html`<${Skeleton} />`}
      ${stats.data && !error && html`<${Counted} id=${id} created=${created} query=${query} data=${stats.data} isOld=${stats.data.bots !== bots} reload=${stats.reload} />`}
    </section>
  `;
  const below = stats.data && !error && stats.data.total_hits > 0 && html`<${Breakdowns} id=${id} path=${['links', id]} query=${query} data=${stats.data} isOld=${stats.data.bots !== bots} range=${rangeOf(query, created)} />`;
  return { main, below };
}
