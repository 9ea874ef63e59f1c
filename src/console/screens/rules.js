// Which of a link's rules holds for a visitor.
import { html, useState } from '../html.js';
import { api } from '../api.js';
import { useAction } from '../load.js';
import { safeHref } from '../format.js';
import { Button, Dialog, Fault, Field, Outside, Pill, Submit, Theirs } from '../ui.js';

const FIELDS = [
  ['agent', 'User-Agent', navigator.userAgent], ['language', 'Accept-Language', 'en, de;q=0.8'], ['address', 'Address', '203.0.113.7'], ['query', 'Query', 'utm_source=mail'],
];

/** @param {{result: any}} props */
const Result = ({ result }) => html`
  <div class="once" role="status">
    <p>Leads to <${Outside} to=${safeHref(result.redirect_url)}><${Theirs}>${result.redirect_url}<//><//></p>
    <p class="soft small">${result.rule === null || result.rule === undefined ? 'No rule holds.' : `By rule ${result.rule}${result.variant === null || result.variant === undefined ? '' : `, variant ${result.variant}`}.`}</p>
    <ol class="judged">${(result.judged ?? []).map((/** @type {any} */ one, /** @type {number} */ i) => html`<li key=${i}><${Pill} kind=${one.holds ? 'ok' : ''}>${one.holds ? 'holds' : 'does not hold'}<//> <${Theirs}>${String(one.rule)}: ${String(one.because)}<//></li>`)}</ol>
  </div>
`;

/** @param {{link: import('../api.js').LinkRecord, onClose: () => void}} props */
export function Explain({ link, onClose }) {
  const [form, setForm] = useState(/** @type {Record<string, string>} */ ({}));
  const [result, setResult] = useState(/** @type {any} */ (undefined));
  const action = useAction(async () => {
    const { agent, language, address, query } = form;
    const headers = { ...(agent && { 'User-Agent': agent }), ...(language && { 'Accept-Language': language }) };
    setResult(await api.explain(link.short_id, { headers, ...(address && { address }), ...(query && { query }) }));
  });
  const submit = (event) => {
    event.preventDefault();
    action.run();
  };
  return html`
    <${Dialog} title="Try the rules" onClose=${onClose}>
      ${(close) => html`
        <form onSubmit=${submit}>
          <p class="soft">Where does a visitor like this go?</p>
          ${FIELDS.map(([name, label, example]) => html`
            <${Field} key=${name} label=${label} optional>${(wiring) => html`<input ...${wiring} class="mono" placeholder=${example} value=${form[name] ?? ''} onInput=${(event) => setForm({ ...form, [name]: event.target.value })} />`}<//>
          `)}
          ${action.error && html`<${Fault} error=${action.error} />`}
          ${result && html`<${Result} result=${result} />`}
          <div class="buttons end"><${Button} onClick=${close}>Close<//><${Submit} busy=${action.busy} error=${action.error}>Try<//></div>
        </form>
      `}
    <//>
  `;
}
