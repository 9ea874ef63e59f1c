// The form of a link's fields, of the composer and of the edit dialog.
import { html, useLayoutEffect, useRef } from './html.js';
import { faultOf, FormFaults, otherFaults } from './fields.js';
import { zone } from './format.js';
import { Check, Fault, Field, Icon, Select } from './ui.js';

/** Which fields stand below which summary. @type {[string, string[]][]} */
const GROUPS = [
  ['Time', ['not_before', 'expires_at', 'fallback_url']],
  ['Redirect', ['redirect_status', 'cache_seconds']],
  ['Webhooks and data', ['webhooks', 'data', 'skip_bots']],
  ['Notes and more', ['notes', 'preview', 'archived', 'tracked']],
];

const STATUSES = [['302', '302 Found (default)'], ['301', '301 Moved Permanently'], ['307', '307 Temporary Redirect'], ['308', '308 Permanent Redirect']];

/** @typedef {{form: Record<string, any>, set: (name: string, value: any) => void, error: any, has: (name: string) => boolean}} FormProps */

/** @param {FormProps & {name: string, label: string, hint?: any, type?: string, area?: number, [more: string]: any}} props */
export function TextField({ form, set, error, has, name, label, hint, type = 'text', area, optional, ...rest }) {
  if (!has(name)) return null;
  const onInput = (event) => set(name, event.target.value);
  return html`
    <${Field} label=${label} hint=${hint} error=${faultOf(error, name, form)} optional=${optional}>
      ${(wiring) => area
        ? html`<textarea ...${wiring} name=${name} rows=${area} value=${form[name]} onInput=${onInput} ...${rest}></textarea>`
        : html`<input ...${wiring} name=${name} type=${type} value=${form[name]} onInput=${onInput} autocomplete="off" ...${rest} />`}
    <//>
  `;
}

/** @param {FormProps & {name: string, children?: any}} props */
const Flag = ({ form, set, error, has, name, children }) => has(name) && html`
  <div><${Check} checked=${form[name]} onChange=${(value) => set(name, value)}>${children}<//>
  ${faultOf(error, name, form) && html`<p class="fault"><${Icon} name="alert" /><span>${faultOf(error, name, form)}</span></p>`}</div>
`;

const local = { type: 'datetime-local', step: 'any' };
const code = { class: 'mono', spellcheck: false, autocapitalize: 'off' };

/** @type {Record<string, (props: FormProps) => any>} */
const GROUP_FIELDS = {
  Time: (props) => html`
    <${TextField} ...${props} ...${local} name="not_before" label="Starts" hint=${`Your time (${zone}). Until then the link is answered 404.`} />
    <${TextField} ...${props} ...${local} name="expires_at" label="Ends" hint=${`Your time (${zone}). No click counts from then on.`} />
    <${TextField} ...${props} name="fallback_url" label="Afterwards leads to" inputmode="url" hint="Where visitors go once the link has ended. Empty: an error page." />
  `,
  Redirect: (props) => html`
    ${props.has('redirect_status') && html`<${Field} label="Status" hint="What browsers are told." error=${faultOf(props.error, 'redirect_status', props.form)}>
      ${(wiring) => html`<${Select} ...${wiring} options=${STATUSES} value=${props.form.redirect_status} onChange=${(value) => props.set('redirect_status', value)} />`}
    <//>`}
    <${TextField} ...${props} name="cache_seconds" label="Browsers may keep it for (seconds)" inputmode="numeric" hint="0: each visit is counted. Visits from a browser’s cache are not." />
  `,
  'Webhooks and data': (props) => html`
    <${TextField} ...${props} ...${code} name="webhooks" label="Webhooks" area=${3} placeholder="https://hooks.example.com/clicks" hint="One URL per line, at most 10. Each click is posted there, signed." />
    <${TextField} ...${props} ...${code} name="data" label="Data" area=${3} placeholder=${'{"campaign": "autumn"}'} hint="A JSON object of at most 10 KB, sent to the webhooks with each click." />
    <${Flag} ...${props} name="skip_bots">No webhooks for clicks of bots<//>
  `,
  'Notes and more': (props) => html`
    <${TextField} ...${props} name="notes" label="Notes" area=${3} hint="For people. At most 2,000 characters." />
    <div>
      <${Flag} ...${props} name="preview">The address with a “+” at its end shows where it leads<//>
      <${Flag} ...${props} name="archived">Archived: left out of lists, still redirects<//>
      <${Flag} ...${props} name="tracked">Count clicks (can’t be changed later)<//>
    </div>
  `,
};

/** A group of options. It opens by itself where a field in it has a fault. @param {FormProps & {title: string, names: string[]}} props */
function Group({ title, names, ...props }) {
  const box = useRef(/** @type {any} */ (null));
  const hasFault = names.some((name) => faultOf(props.error, name, props.form));
  useLayoutEffect(() => {
    if (hasFault) box.current.open = true;
  }, [hasFault, props.error]);
  return html`
    <details class="options" ref=${box}>
      <summary><${Icon} name="down" />${title}</summary>
      <div class="two">${GROUP_FIELDS[title](props)}</div>
    </details>
  `;
}

/** All fields beside the target and the name. @param {FormProps} props */
export const Options = (props) => html`
  <div class="two">
    <${TextField} ...${props} name="title" label="Title" optional />
    <${TextField} ...${props} name="tags" label="Tags" optional placeholder="mail, autumn" hint="Separated by commas." />
  </div>
  <div class="groups">
    ${GROUPS.map(([title, names]) => names.some(props.has) && html`<${Group} key=${title} title=${title} names=${names} ...${props} />`)}
  </div>
`;

/** The problem of a form, but for the faults that stand at its fields. @param {{error: any, has: (name: string) => boolean}} props */
export function FormFault({ error, has }) {
  if (!error || (error.slug === 'slug-taken' && has('slug'))) return null;
  const others = otherFaults(error, has);
  if ((error.slug === 'validation' || !error.status) && error.errors?.length) {
    return others.length > 0 && html`<${Fault} error=${{ title: 'The form has faults', detail: 'The service has refused this:', errors: others }} />`;
  }
  return html`<${Fault} error=${error} />`;
}

/** Refuses fields that are half typed: the browser gives such a date no value, as if it were empty. @param {HTMLFormElement} form */
export function readable(form) {
  const fields = /** @type {HTMLInputElement[]} */ ([...form.elements]).filter((field) => field.validity?.badInput);
  if (fields.length) throw new FormFaults(fields.map(({ name }) => ({ pointer: `/${name}`, detail: 'must be a whole date and time' })));
}

/** Moves the focus to the first field with a fault, in the same step that shows the faults: later it would take the focus from a field
 * that the person has gone to. The groups of the form are open by then, for effects of children run before those of their parents.
 * @param {any} error @param {{current: any}} box */
export function useFirstFault(error, box) {
  useLayoutEffect(() => {
    if (error) box.current?.querySelector('[aria-invalid]')?.focus();
  }, [error]);
}
