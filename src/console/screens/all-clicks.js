// The clicks of all links of a key.
import { html, useEffect } from '../html.js';
import { counted } from '../format.js';
import { session } from '../session.js';
import { Empty, Fault, Skeleton } from '../ui.js';
import { Breakdowns } from './breakdowns.js';
import { BotsChoice, Plotted, RangeChoice, useSeries } from './series.js';

/** @param {{query: URLSearchParams}} props */
export function AllClicks({ query }) {
  useEffect(() => {
    document.title = 'Clicks · Signpost';
  }, []);
  const path = ['clicks'];
  const created = session.self?.created_at ?? '';
  const mayAnalyse = session.may('analytics:read');
  const { range, asked, series, error, reload } = useSeries(null, created, query, !mayAnalyse);
  if (!mayAnalyse) return html`<h1>Clicks</h1><section class="panel"><${Empty} title="This key can’t see clicks">It lacks the scope analytics:read.<//></section>`;
  return html`
    <h1>Clicks of all links</h1>
    <section class="panel" aria-labelledby="clicks-title">
      <header class="tools clicks-head"><h2 id="clicks-title">${series ? counted(series.total, 'click') : 'Clicks'}</h2><${BotsChoice} path=${path} query=${query} /></header>
      <${RangeChoice} path=${path} created=${created} query=${query} />
      ${error ? html`<${Fault} error=${error} onRetry=${reload} />` : series ? html`<${Plotted} id=${null} bars=${series.points} range=${range} asked=${asked} />` : html`<${Skeleton} rows=${4} />`}
      <p class="soft small">Of the tracked links that this key has made, also of those that are deleted.</p>
    </section>
    <${Breakdowns} id=${null} path=${path} query=${query} range=${range} />
  `;
}
