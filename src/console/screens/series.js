// Clicks over a range: which range, and its bars.
import { html } from '../html.js';
import { api, exportPaths } from '../api.js';
import { save } from '../csv.js';
import { useAction, useLoad } from '../load.js';
import { DAY_MS, isoDay } from '../format.js';
import { refine } from '../router.js';
import { Button, Choice, Fault, Typed, Unavailable } from '../ui.js';
import { Bars, BarsTable } from '../plots.js';

/** @typedef {import('../plots.js').Bar} Bar */
/** What is asked of the series, and how its bars are called. @typedef {{unit: string, from?: string, until?: string}} Range */

export const RANGES = [['24h', '24 h'], ['7', '7 days'], ['', '30 days'], ['90', '90 days'], ['365', 'Year'], ['all', 'All'], ['custom', 'Dates']];

export const today = () => Math.floor(Date.now() / DAY_MS) * DAY_MS;

/** A day in the address, which anybody may have written; '' if it is none. @param {URLSearchParams} query @param {string} name */
function dayOf(query, name) {
  const day = query.get(name) ?? '';
  return /^\d{4}-\d\d-\d\d$/.test(day) && !Number.isNaN(Date.parse(day)) ? day : '';
}

/** @param {URLSearchParams} query @param {string} created @returns {Range} */
export function rangeOf(query, created) {
  const back = (/** @type {number} */ days) => isoDay(today() - (days - 1) * DAY_MS);
  const range = query.get('range') ?? '';
  if (range === '24h') return { unit: 'hour', from: new Date(Math.floor(Date.now() / 3_600_000) * 3_600_000 - 23 * 3_600_000).toISOString() };
  if (range === '7' || range === '90') return { unit: 'day', from: back(Number(range)) };
  if (range === '365') return { unit: 'week', from: back(365) };
  const from = range === 'all' ? created.slice(0, 10) : (range === 'custom' && dayOf(query, 'from')) || back(30);
  // Days to come have no clicks.
  const until = range === 'custom' && Date.parse(dayOf(query, 'until')) < today() ? dayOf(query, 'until') : '';
  const days = ((until ? Date.parse(until) : today() + DAY_MS) - Date.parse(from)) / DAY_MS;
  return { unit: days <= 92 ? 'day' : days <= 731 ? 'week' : 'month', from, ...(until && { until: isoDay(Date.parse(until) + DAY_MS) }) };
}

const BOTS = [['', 'With bots'], ['exclude', 'Without'], ['only', 'Only bots']];

/** The series that the address asks for, of a link or of all links of the key. An answer to another question is not shown. `since` is what
 * `count` had when the series was asked for: the series has what was counted before. With another `version` it is asked for again.
 * @param {string | null} id @param {string} created @param {URLSearchParams} query @param {boolean} isKnown @param {{count: number, version: number}} [live] */
export function useSeries(id, created, query, isKnown, { count, version } = { count: 0, version: 0 }) {
  const range = rangeOf(query, created);
  const asked = { from: range.from, until: range.until, interval: range.unit, bots: query.get('bots') ?? '' };
  const wanted = JSON.stringify([id, asked]);
  const { data, error, reload } = useLoad(async (signal) => (isKnown ? undefined : { of: wanted, since: count, series: await api.series(id, asked, signal) }), [isKnown, wanted, isKnown || version]);
  const answer = !isKnown && data?.of === wanted ? data : undefined;
  return { range, asked, series: answer?.series, since: answer?.since ?? 0, error: isKnown ? undefined : error, reload };
}

/** Bars, and the same as a table and as CSV. @param {{id: string | null, bars: Bar[], range: Range, asked: import('../api.js').Parameters}} props */
export function Plotted({ id, bars, range, asked }) {
  const isOver = range.until !== undefined && Date.parse(range.until) <= Date.now();
  const download = useAction(async () => save(await api.csv(exportPaths.series(id), asked), `${id ?? 'clicks'}.csv`));
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
  const date = (/** @type {string} */ name, /** @type {number} */ usual) =>
    html`<${Typed} type="date" value=${query.get(name) ?? isoDay(usual)} onChange=${(/** @type {string} */ day) => refine({ [name]: day })} />`;
  return html`
    <div class="dates"><label>From ${date('from', today() - 29 * DAY_MS)}</label><label>to ${date('until', today())}</label></div>
  `;
}

/** @param {{path: string[], created: string, query: URLSearchParams}} props */
export const RangeChoice = ({ path, created, query }) => html`
  <div class="tools plot-tools">
    <p class="soft small">Clicks per ${rangeOf(query, created).unit}, UTC · dashed: so far</p>
    <${Choice} label="Range" path=${path} query=${query} name="range" value=${query.get('range') ?? ''} options=${RANGES} />
  </div>
  ${query.get('range') === 'custom' && html`<${Dates} query=${query} />`}
`;

/** @param {{path: string[], query: URLSearchParams}} props */
export const BotsChoice = ({ path, query }) => html`<${Choice} label="Bots" path=${path} query=${query} name="bots" value=${query.get('bots') ?? ''} options=${BOTS} />`;
