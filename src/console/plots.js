// Plots as SVG: themed by the style sheet, sharp at any size, and readable by screen readers.
import { html, useId, useLayoutEffect, useRef, useState } from './html.js';
import { counted, interval, number, percent, short } from './format.js';
import { Icon } from './ui.js';

/** @typedef {{start: string, count: number}} Bar */

/** The steps of an axis of counts: whole, round, about `wanted` of them. @param {number} max */
export function ticks(max, wanted = 4) {
  const rough = Math.max(1, max / wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough && Number.isInteger(n)) ?? 10 * power);
  return Array.from({ length: Math.max(1, Math.ceil(max / step)) + 1 }, (_, i) => i * step);
}

function useWidth() {
  const box = useRef(/** @type {any} */ (null));
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  return /** @type {const} */ ([box, width]);
}

const [ABOVE, BELOW] = [10, 26];

/** Where things are in a plot. @param {Bar[]} bars @param {number} width @param {number} height */
function layout(bars, width, height) {
  const steps = ticks(bars.reduce((max, { count }) => Math.max(max, count), 4));
  const left = Math.max(...steps.map((step) => short(step).length)) * 7.5 + 10;
  const depth = height - ABOVE - BELOW;
  const band = Math.max(0, width - left) / Math.max(1, bars.length);
  const thick = Math.min(28, Math.max(1, band * (bars.length > 60 ? 0.8 : 0.64)));
  const y = (/** @type {number} */ count) => ABOVE + depth * (1 - count / steps[steps.length - 1]);
  const shape = (/** @type {number} */ i) => {
    const [x, from, to] = [left + i * band + (band - thick) / 2, y(bars[i].count), y(0)];
    const round = Math.min(3, thick / 2, to - from);
    return `M${x} ${to}V${from + round}q0 ${-round} ${round} ${-round}h${thick - 2 * round}q${round} 0 ${round} ${round}V${to}z`;
  };
  return { steps, left, depth, band, y, shape, every: Math.max(1, Math.ceil(72 / Math.max(band, 0.1))) };
}

/** Bars per hour, day, week or month. The last one is not over yet, and drawn so. @param {{bars: Bar[], unit: string, height?: number, isOver?: boolean}} props */
export function Bars({ bars, unit, height = 232, isOver = false }) {
  const [box, width] = useWidth();
  const [at, setAt] = useState(/** @type {number | null} */ (null));
  const { steps, left, depth, band, y, shape, every } = layout(bars, width, height);
  const end = bars.length - 1;
  const shown = at === null ? null : Math.min(at, end);
  const isPartial = (/** @type {number} */ i) => i === end && !isOver;
  const told = (/** @type {number} */ i) => `${interval(bars[i].start, unit).full}${isPartial(i) ? ', so far' : ''}`;
  const seek = (event) => {
    const i = Math.floor((event.clientX - event.currentTarget.getBoundingClientRect().left - left) / band);
    setAt(i >= 0 && i <= end ? i : null);
  };
  const step = (/** @type {KeyboardEvent} */ event) => {
    const now = shown ?? end;
    const next = /** @type {Record<string, number>} */ ({ ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: end })[event.key];
    if (next === undefined) return;
    event.preventDefault();
    setAt(Math.max(0, Math.min(end, next)));
  };
  const now = shown ?? end;
  const middle = (/** @type {number} */ i) => left + (i + 0.5) * band;
  return html`
    <div
      class="plot" ref=${box} tabindex="0" role="slider" aria-label=${`Clicks per ${unit}`} aria-orientation="horizontal"
      aria-valuemin="0" aria-valuemax=${end} aria-valuenow=${now} aria-valuetext=${`${told(now)}: ${counted(bars[now].count, 'click')}`}
      onPointerMove=${seek} onPointerDown=${seek} onPointerLeave=${() => setAt(null)} onKeyDown=${step}
      onFocus=${(event) => event.target.matches(':focus-visible') && setAt(end)} onBlur=${() => setAt(null)}
    >
      ${width > 0 && html`
        <svg width=${width} height=${height} aria-hidden="true">
          ${steps.map((value) => html`
            <g key=${value}><line class=${value ? 'grid' : 'base'} x1=${left} x2=${width} y1=${Math.round(y(value)) + 0.5} y2=${Math.round(y(value)) + 0.5} />
            <text class="tick" x=${left - 10} y=${y(value)} dy=".35em" text-anchor="end">${short(value)}</text></g>
          `)}
          ${shown !== null && html`<rect class="column" x=${left + shown * band} y=${ABOVE} width=${band} height=${depth} />`}
          ${bars.map(({ start, count }, i) => count > 0 && html`<path key=${start} class=${`bar ${isPartial(i) ? 'partial' : ''} ${i === shown ? 'on' : ''}`} d=${shape(i)} />`)}
          ${bars.map(({ start }, i) => (end - i) % every === 0 && middle(i) > left + 16 && html`
            <text key=${start} class="tick" x=${i === end ? width : middle(i)} y=${height - 6} text-anchor=${i === end ? 'end' : 'middle'}>${interval(start, unit).short}</text>
          `)}
        </svg>
        ${shown !== null && html`
          <div class="readout" style=${{ left: `${Math.max(84, Math.min(width - 84, middle(shown)))}px`, top: `${Math.max(52, y(bars[shown].count))}px` }}>
            <strong>${number(bars[shown].count)}</strong> ${bars[shown].count === 1 ? 'click' : 'clicks'}<span>${told(shown)}</span>
          </div>
        `}
      `}
    </div>
  `;
}

/** The same as a table. @param {{bars: Bar[], unit: string, children?: any}} props */
export function BarsTable({ bars, unit, children }) {
  const [open, setOpen] = useState(false);
  return html`
    <details class="as-table" onToggle=${(event) => setOpen(event.target.open)}>
      <summary><${Icon} name="down" />Show as a table</summary>
      ${open && html`
        <div class="scroll" tabindex="0" role="region" aria-label=${`Clicks per ${unit}, table`}>
          <table><thead><tr><th scope="col">${unit.charAt(0).toUpperCase() + unit.slice(1)} (UTC)</th><th scope="col" class="num">Clicks</th></tr></thead>
          <tbody>${bars.toReversed().map(({ start, count }) => html`<tr key=${start}><td>${interval(start, unit).full}</td><td class="num">${number(count)}</td></tr>`)}</tbody></table>
        </div>
        ${children}
      `}
    </details>
  `;
}

/** Thirty days at a glance, beside a number that says it in full. @param {{values: number[]}} props */
export function Spark({ values }) {
  const top = Math.max(...values);
  const shape = (/** @type {number} */ value, /** @type {number} */ i) => `M${i * 4} 28v${value ? -Math.max(2, Math.round((value / top) * 26)) : -1.5}h3V28z`;
  const path = (zero) => values.map((value, i) => ((value === 0) === zero ? shape(value, i) : '')).join('');
  return html`<svg class="spark" viewBox="0 0 119 28" width="119" height="28" preserveAspectRatio="none" aria-hidden="true"><path class="low" d=${path(true)} /><path d=${path(false)} /></svg>`;
}

/** @typedef {{label: string, count: number, rest?: boolean}} Row */

/** Labels by count. @param {{rows: Row[], total: number, name?: (label: string) => string, label: string}} props */
export function BarList({ rows, total, name = (text) => text, label }) {
  const id = useId();
  const top = rows.reduce((max, { count, rest }) => (rest ? max : Math.max(max, count)), 1);
  if (!rows.length) return html`<p class="soft none">Nothing to show yet.</p>`;
  return html`
    <ol class="bars" aria-label=${label} id=${id}>
      ${rows.map((row) => html`
        <li key=${`${row.rest ? '-' : '+'}${row.label}`} class=${row.rest ? 'rest' : ''}>
          ${!row.rest && html`<div class="fill" style=${{ width: `${(row.count / top) * 100}%` }}></div>`}
          <bdi class="name" title=${row.label}>${row.rest ? row.label : name(row.label)}</bdi><span class="num">${number(row.count)}</span><span class="num part">${total ? percent(row.count / total) : ''}</span>
        </li>
      `)}
    </ol>
  `;
}
