// Clicks by one of their properties.
import { html, useState } from '../html.js';
import { api, exportPaths } from '../api.js';
import { save } from '../csv.js';
import { useAction, useLoad } from '../load.js';
import { DAY_MS, fullDay, isoDay, labelOf } from '../format.js';
import { Choice, Fault, Select, Skeleton, Unavailable } from '../ui.js';
import { BarList } from '../plots.js';
import { today } from './series.js';

/** @typedef {import('./series.js').Range} Range */

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

/** How many days a service keeps by themselves, unless its operator has set another number. */
const USUAL_DAYS = 90;

/** A breakdown begins and ends with one of the last days, or with a month: other ends are moved outwards.
 * @param {Range} range @param {number} [days] @returns {{from: string, until?: string}} */
export function breakdownRange({ from = '', until }, days = USUAL_DAYS) {
  const tomorrow = today() + DAY_MS;
  const isKept = (/** @type {number} */ day) => (days > 0 && day > today() - days * DAY_MS) || new Date(day).getUTCDate() === 1;
  const monthOf = (/** @type {number} */ day, /** @type {number} */ later) => Date.UTC(new Date(day).getUTCFullYear(), new Date(day).getUTCMonth() + later, 1);
  const first = Date.parse(from.slice(0, 10));
  const last = until ? Date.parse(until.slice(0, 10)) : tomorrow;
  const end = isKept(last) ? last : monthOf(last, 1);
  return { from: isoDay(isKept(first) ? first : monthOf(first, 0)), ...(end < tomorrow && { until: isoDay(end) }) };
}

/** @param {{id: string | null, title: string, dimensions: string[], data?: any, isOld: boolean, bots: string, range?: Range}} props */
function Breakdown({ id, title, dimensions, data, isOld, bots, range }) {
  const [dimension, setDimension] = useState(dimensions[0]);
  const [limit, setLimit] = useState(10);
  const [name, place] = DIMENSIONS[dimension];
  const first = place && !range ? data?.[place] : undefined;
  const known = limit === 10 ? first : undefined;
  const span = range && breakdownRange(range);
  const ask = async (/** @type {AbortSignal} */ signal) => {
    const asked = { dimension, limit, bots };
    try {
      return { ...(await api.breakdown(id, { ...asked, ...span }, signal)), isWhole: false };
    } catch (error) {
      // The operator may have it keep fewer days, or none: months are always there.
      if (!range || !(/** @type {any} */ (error).errors?.some(({ parameter }) => parameter === 'from' || parameter === 'until'))) throw error;
      return { ...(await api.breakdown(id, { ...asked, ...breakdownRange(range, 0) }, signal)), isWhole: true };
    }
  };
  // What an answer is of, but for its length: fewer rows stay until more are there.
  const wanted = JSON.stringify([id, dimension, bots, span]);
  const more = useLoad(async (signal) => (known ? undefined : { of: wanted, answer: await ask(signal) }), [wanted, limit, Boolean(known)]);
  const answer = !known && more.data?.of === wanted ? more.data.answer : undefined;
  const rows = known ?? (answer ? withRest(answer) : first);
  const isCut = limit < 1000 && dimension !== 'device' && (answer ? answer.more > 0 : first?.length === 10 || limit > 10);
  const isLoading = known ? isOld : more.loading;
  const download = useAction(async () => save(await api.csv(exportPaths.breakdown(id), { dimension, limit: 1000, bots, ...(range && answer?.isWhole ? breakdownRange(range, 0) : span) }), `${id ?? 'clicks'}-${dimension}.csv`));
  return html`
    <section class=${`panel ${known && isOld ? 'old' : ''}`} aria-busy=${String(isLoading)}>
      <header class="tools"><h2>${title}</h2>
        <${Select} aria-label=${`${title} by`} value=${dimension} onChange=${(next) => { setDimension(next); setLimit(10); }} options=${dimensions.map((one) => [one, DIMENSIONS[one][0]])} />
      </header>
      ${!known && more.error && (more.error.isUnavailable ? html`<${Unavailable} what="this breakdown" />` : html`<${Fault} error=${more.error} onRetry=${more.reload} />`)}
      ${!rows && !more.error && html`<${Skeleton} rows=${4} />`}
      ${answer?.isWhole && html`<p class="soft small">Whole months: this service does not keep all days of the range.</p>`}
      ${rows && html`
        <${BarList} rows=${rows} total=${answer ? answer.total : data.total_hits} name=${(label) => labelOf(dimension, label)} label=${name} />
        ${isCut && html`<button type="button" class="plain" aria-disabled=${isLoading ? 'true' : undefined} onClick=${() => isLoading || setLimit(limit === 10 ? 100 : 1000)}>${isLoading ? 'Loading…' : 'Show more'}</button>`}
        <button type="button" class="plain" onClick=${() => download.run()}>CSV<span class="vh"> of ${name}</span></button>
        ${download.error && html`<${Fault} error=${download.error} />`}
      `}
    </section>
  `;
}

/** The days that the breakdowns count. @param {{from: string, until?: string}} span */
const spanText = ({ from, until }) => `${fullDay(from)} to ${until ? fullDay(Date.parse(until) - DAY_MS) : 'now'}, UTC`;

/** `data` is what is known without a range; `isOld`: of another choice of bots.
 * @param {{id: string | null, path: string[], query: URLSearchParams, data?: any, isOld?: boolean, range: Range}} props */
export function Breakdowns({ id, path, query, data, isOld = false, range }) {
  const isRange = query.get('scope') === 'range';
  return html`
    <div class="tools breakdown-tools">
      <h2>Where from, and with what</h2>
      ${isRange && html`<p class="soft small">${spanText(breakdownRange(range))}</p>`}
      <${Choice} label="Time of the breakdowns" path=${path} query=${query} name="scope" value=${isRange ? 'range' : ''} options=${[['', 'All time'], ['range', 'Range above']]} />
    </div>
    <div class="three">
      ${PANELS.map(([title, dimensions]) => html`<${Breakdown} key=${title} id=${id} title=${title} dimensions=${dimensions} data=${data} isOld=${isOld} bots=${query.get('bots') ?? ''} range=${isRange ? range : undefined} />`)}
    </div>
  `;
}
