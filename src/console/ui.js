// The parts that screens are made of.
import { html, useEffect, useId, useLayoutEffect, useRef, useState } from './html.js';
import { useCountdown } from './load.js';
import { href } from './router.js';
import { ago, bare, counted, number } from './format.js';

/** @type {Record<string, string>} */
const SHAPES = {
  sign: 'M10 1.8v1.7M10 7.7v2.1M10 14v4.2M4.6 3.5h8.9l2.3 2.1-2.3 2.1H4.6zM15.4 9.8H6.5l-2.3 2.1L6.5 14h8.9z',
  copy: 'M7.5 7.5V4.2c0-.4.3-.7.7-.7h7.6c.4 0 .7.3.7.7v7.6c0 .4-.3.7-.7.7h-3.3M4.2 7.5h7.6c.4 0 .7.3.7.7v7.6c0 .4-.3.7-.7.7H4.2a.7.7 0 0 1-.7-.7V8.2c0-.4.3-.7.7-.7z',
  check: 'M4 10.5l4 4 8-9',
  more: 'M4.5 10h.01M10 10h.01M15.5 10h.01',
  search: 'M9 14.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11zM13 13l3.5 3.5',
  out: 'M8 4.5H5.2a.7.7 0 0 0-.7.7v9.6c0 .4.3.7.7.7h9.6c.4 0 .7-.3.7-.7V12M11.5 4.5h4v4M15.2 4.8L9 11',
  archive: 'M3.5 4.5h13v3h-13zM4.5 7.5v7.3c0 .4.3.7.7.7h9.6c.4 0 .7-.3.7-.7V7.5M8 10.5h4',
  trash: 'M4 5.5h12M8 5.5v-2h4v2M5.5 5.5l.6 10.3c0 .4.3.7.7.7h6.4c.4 0 .7-.3.7-.7l.6-10.3M8.3 8.5l.2 5M11.7 8.5l-.2 5',
  edit: 'M3.5 16.5l.8-3.4 8.9-8.9a1.2 1.2 0 0 1 1.7 0l.9.9c.5.5.5 1.2 0 1.7l-8.9 8.9zM11.8 5.6l2.6 2.6',
  plus: 'M10 4v12M4 10h12',
  turn: 'M16.5 4v4h-4M16.2 8A6.5 6.5 0 1 0 16.5 10.8',
  back: 'M12 4.5L6.5 10l5.5 5.5',
  down: 'M5.5 8l4.5 4.5L14.5 8',
  alert: 'M10 6.5v4.5M10 13.8h.01M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14z',
  leave: 'M12 4.5H5.2a.7.7 0 0 0-.7.7v9.6c0 .4.3.7.7.7H12M9 10h7.5M13.8 7.2l2.8 2.8-2.8 2.8',
  save: 'M10 3.5v9M6.5 9.2l3.5 3.5 3.5-3.5M4 16.5h12',
  key: 'M8 15a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM10.5 9L16 3.5M13 6.5l2 2',
  eye: 'M2.5 10S5.2 5 10 5s7.5 5 7.5 5-2.7 5-7.5 5-7.5-5-7.5-5zM10 12.2a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4z',
  close: 'M5 5l10 10M15 5L5 15',
  send: 'M3 9.5l13.5-6-4.5 13-3-5.5zM9 11l7.5-7.5',
  block: 'M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM5.2 5.2l9.6 9.6',
};

/** @param {{name: string}} props */
export const Icon = ({ name }) => html`
  <svg class=${`icon icon-${name}`} viewBox="0 0 20 20" width="20" height="20" aria-hidden="true"><path d=${SHAPES[name]} /></svg>
`;

/** @param {Record<string, any>} props */
export const Button = ({ icon, kind = '', children, ...rest }) => html`
  <button type="button" class=${`button ${kind}`} ...${rest}>${icon && html`<${Icon} name=${icon} />`}${children && html`<span>${children}</span>`}</button>
`;

/** @param {Record<string, any>} props */
export const IconButton = ({ icon, label, ...rest }) => html`
  <button type="button" class="icon-button" aria-label=${label} title=${label} ...${rest}><${Icon} name=${icon} /></button>
`;

/** The button that sends a form. It stays focusable while it waits, so that the focus is not lost. @param {Record<string, any>} props */
export function Submit({ children, busy = false, error, kind = 'primary', disabled = false, busyText = 'Sending…' }) {
  const seconds = useCountdown(error?.retryAt);
  const off = busy || disabled || seconds > 0;
  return html`
    <button type="submit" class=${`button ${kind}`} aria-disabled=${off ? 'true' : undefined} onClick=${(event) => off && event.preventDefault()}>
      <span>${busy ? busyText : seconds > 0 ? `Again in ${seconds} s` : children}</span>
    </button>
  `;
}

/** Leads out of the console: the page there learns neither the console's address nor its window. @param {Record<string, any>} props */
export const Outside = ({ to, children, ...rest }) =>
  to ? html`<a href=${to} target="_blank" rel="noopener noreferrer" ...${rest}>${children}</a>` : html`<span ...${rest}>${children}</span>`;

/** Text that somebody typed: it can't turn the direction of the text around it. @param {{children?: any}} props */
export const Theirs = ({ children }) => html`<bdi class="theirs">${children}</bdi>`;

/** @param {{link: {short_url: string, short_id: string}, big?: boolean}} props */
export const ShortLink = ({ link, big }) => {
  const url = bare(link.short_url);
  return html`<span class=${`short ${big ? 'big' : ''}`}><span class="host">${url.slice(0, -link.short_id.length)}</span><span class="id">${link.short_id}</span></span>`;
};

/** @param {string} text */
async function copy(text) {
  // Only pages with TLS, or from this machine, have a clipboard.
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const before = /** @type {HTMLElement | null} */ (document.activeElement);
  const field = document.createElement('textarea');
  field.value = text;
  (document.querySelector('dialog[open]') ?? document.body).append(field);
  field.select();
  const copied = document.execCommand('copy');
  field.remove();
  before?.focus();
  if (!copied) throw new Error('not copied');
}

/** @param {{text: string, label?: string, kind?: string, what?: string}} props */
export function Copy({ text, label = 'Copy', kind, what = '' }) {
  const [done, setDone] = useState('');
  useEffect(() => {
    if (!done) return undefined;
    const timer = setTimeout(() => setDone(''), 1800);
    return () => clearTimeout(timer);
  }, [done]);
  const act = () => copy(text).then(() => setDone('Copied'), () => setDone('Not copied: select the text and copy it by hand'));
  const icon = done === 'Copied' ? 'check' : 'copy';
  return html`
    ${kind === 'icon' ? html`<${IconButton} icon=${icon} label=${what} onClick=${act} />` : html`<${Button} icon=${icon} kind=${kind} onClick=${act}>${done === 'Copied' ? done : label}<span class="vh"> ${what}</span><//>`}
    <span class="vh" role="status">${done}</span>
  `;
}

/** A button that shows a list of actions; Escape and a click elsewhere close it. @param {Record<string, any>} props */
export function Menu({ label, icon = 'more', face, children, wide }) {
  const [open, setOpen] = useState(false);
  const box = useRef(/** @type {any} */ (null));
  const id = useId();
  useLayoutEffect(() => {
    if (!open) return undefined;
    const leave = (event) => {
      if (event.type === 'keydown' ? event.key !== 'Escape' : box.current?.contains(event.target)) return;
      setOpen(false);
      if (event.type === 'keydown') box.current?.querySelector('button').focus();
    };
    const types = ['keydown', 'pointerdown', 'focusin'];
    for (const type of types) addEventListener(type, leave);
    return () => types.forEach((type) => removeEventListener(type, leave));
  }, [open]);
  // Back to the button first: a dialog that an action opens returns the focus to where it was.
  const pick = (event) => {
    if (!event.target.closest('[data-close]')) return;
    box.current.querySelector('button').focus();
    setOpen(false);
  };
  const control = { 'aria-expanded': String(open), 'aria-controls': id, onClick: () => setOpen(!open) };
  return html`
    <div class="menu" ref=${box}>
      ${face ? html`<button type="button" class="face" aria-label=${label} ...${control}>${face}</button>` : html`<${IconButton} icon=${icon} label=${label} ...${control} />`}
      ${open && html`<div class="shade" onClick=${() => setOpen(false)}></div>`}
      <div class=${`sheet ${wide ? 'wide' : ''}`} id=${id} hidden=${!open} onClickCapture=${pick}>${children}</div>
    </div>
  `;
}

/** @param {Record<string, any>} props */
export const Action = ({ icon, children, kind = '', ...rest }) => html`
  <button type="button" class=${`action ${kind}`} data-close ...${rest}><${Icon} name=${icon} />${children}</button>
`;

/** A modal dialog. `children` is called with a function that closes it. @param {Record<string, any>} props */
export function Dialog({ title, onClose, children, kind = '' }) {
  const box = useRef(/** @type {any} */ (null));
  const pressed = useRef(/** @type {any} */ (null));
  const id = useId();
  // In the step that shows it: later it would take the focus from a field that the person has gone to.
  useLayoutEffect(() => box.current.showModal(), []);
  const close = () => box.current?.close();
  // A drag that begins in a field and ends outside must not close what was typed.
  const outside = (event) => event.target === box.current && pressed.current === box.current && close();
  return html`
    <dialog ref=${box} class=${kind} aria-labelledby=${id} onClose=${(event) => event.target === box.current && onClose()}
      onPointerDown=${(event) => (pressed.current = event.target)} onClick=${outside}>
      <div class="dialog-body">
        <header><h2 id=${id}>${title}</h2><${IconButton} icon="close" label="Close" onClick=${close} /></header>
        ${children(close)}
      </div>
    </dialog>
  `;
}

/** A question before something that can't be undone. @param {Record<string, any>} props */
export const Confirm = ({ title, onClose, children, action, verb, keep = 'Cancel' }) => html`
  <${Dialog} title=${title} onClose=${onClose} kind="small">
    ${(close) => html`
      <form onSubmit=${async (event) => {
        event.preventDefault();
        if (await action.run()) close();
      }}>
        ${children}
        ${action.error && html`<${Fault} error=${action.error} />`}
        <div class="buttons end"><${Button} onClick=${close}>${keep}<//><${Submit} kind="danger" busy=${action.busy} error=${action.error}>${verb}<//></div>
      </form>
    `}
  <//>
`;

/** @param {string} text */
export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** A labelled control: `children` is called with the attributes that tie it to its label, hint and fault. @param {Record<string, any>} props */
export function Field({ label, hint, error, children, optional }) {
  const id = useId();
  const about = [hint && `${id}h`, error && `${id}e`].filter(Boolean).join(' ') || undefined;
  return html`
    <div class="field">
      <label for=${id}>${label}${optional && html` <span class="soft">optional</span>`}</label>
      ${children({ id, 'aria-describedby': about, 'aria-invalid': error ? 'true' : undefined })}
      ${hint && html`<p class="hint" id=${`${id}h`}>${hint}</p>`}
      ${error && html`<p class="fault" id=${`${id}e`}><${Icon} name="alert" /><span>${sentence(error)}</span></p>`}
    </div>
  `;
}

/** @param {Record<string, any>} props */
export const Check = ({ checked, onChange, children, ...rest }) => html`
  <label class="check"><input type="checkbox" checked=${checked} onChange=${(event) => onChange(event.target.checked)} ...${rest} /><span>${children}</span></label>
`;

/** An input that tells its value once it is complete. What is half typed stays, whatever is rendered meanwhile. @param {Record<string, any>} props */
export function Typed({ value, onChange, ...rest }) {
  const box = useRef(/** @type {any} */ (null));
  useLayoutEffect(() => {
    if (box.current.value !== value) box.current.value = value;
  }, [value]);
  const change = ({ target }) => target.validity.badInput || onChange(target.value);
  // A browser says nothing when the rest of a half typed date is removed, too.
  const leave = ({ target }) => {
    if (target.validity.badInput) target.value = value;
    else if (target.value !== value) onChange(target.value);
  };
  return html`<input ref=${box} ...${rest} onChange=${change} onBlur=${leave} />`;
}

/** Options of a `select`. @param {Record<string, any>} props */
export const Select = ({ options, value, onChange, ...rest }) => html`
  <select value=${value} onChange=${(event) => onChange(event.target.value)} ...${rest}>
    ${options.map(([option, text]) => html`<option key=${option} value=${option} selected=${option === value}>${text}</option>`)}
  </select>
`;

/** Choices that are part of the address: they are links, so that "back" undoes them. @param {Record<string, any>} props */
export const Choice = ({ label, path, query, name, options, value }) => html`
  <nav class="choice" aria-label=${label}>
    ${options.map(([option, text]) => html`
      <a key=${option} href=${href(path, { ...Object.fromEntries(query), [name]: option })} aria-current=${option === value ? 'true' : undefined}>${text}</a>
    `)}
  </nav>
`;

/** @param {Record<string, any>} props */
export const Tabs = ({ label, options, value, onChange }) => html`
  <div class="choice" role="group" aria-label=${label}>
    ${options.map(([option, text]) => html`<button type="button" key=${option} aria-pressed=${String(option === value)} onClick=${() => onChange(option)}>${text}</button>`)}
  </div>
`;

/** @param {{kind?: string, children?: any}} props */
export const Pill = ({ kind = '', children }) => html`<span class=${`pill ${kind}`}>${children}</span>`;

/** @param {{title: string, children?: any}} props */
export const Empty = ({ title, children }) => html`<div class="empty"><${Icon} name="sign" /><p class="lead">${title}</p><p>${children}</p></div>`;

/** @param {any} error */
function told(error) {
  if (error.slug === 'rate-limited') return ['Too many requests in a minute', 'The limit of this key, or of this address, is reached.'];
  if (error.slug === 'link-quota-exceeded') {
    return ['This month’s links are used up', `This key has created ${counted(error.current ?? 0, 'link')} of ${number(error.limit ?? 0)}. The count starts again on the first of the month, UTC. Existing links still redirect.`];
  }
  if (error.slug === 'scope-missing') return [`This key lacks a scope`, error.detail];
  if (error.status === 401) return ['Your session has ended', 'Sign in again to go on.'];
  return [error.title ?? 'This did not work', error.detail ?? String(error.message ?? error)];
}

/** A countdown inside of a live region: screen readers tell its beginning and its end, not each second. @param {{left: number, soon: string, now: string}} props */
export const Seconds = ({ left, soon, now }) =>
  left > 0 ? html`${soon}<span aria-hidden="true"> in ${left} s</span>.` : html`${now}`;

/** What was refused, why, and what to do. @param {{error: any, onRetry?: () => void, children?: any}} props */
export function Fault({ error, onRetry, children }) {
  const [title, detail] = told(error);
  const seconds = useCountdown(error.retryAt);
  const faults = (error.errors ?? []).slice(0, 10);
  return html`
    <div class="trouble" role="alert">
      <${Icon} name="alert" />
      <div>
        <p class="lead">${title}</p>
        <p>${detail}</p>
        ${faults.length > 0 && html`<ul>${faults.map((one, i) => html`<li key=${i}><code>${one.pointer ?? one.parameter ?? one.header ?? ''}</code> ${one.detail}</li>`)}</ul>`}
        ${error.retryAt !== undefined && html`<p><strong><${Seconds} left=${seconds} soon="Retry" now="Retry now." /></strong></p>`}
        ${error.requestId && html`<p class="soft small">Request <code>${error.requestId}</code></p>`}
        ${children}
      </div>
      ${onRetry && html`<${Button} icon="turn" onClick=${onRetry}>Try again<//>`}
    </div>
  `;
}

/** The button below a list. Where it goes away because the list is at its end, the focus goes to the heading above. @param {Record<string, any>} props */
export function More({ onClick, loading, children = 'Show more' }) {
  const box = useRef(/** @type {any} */ (null));
  useLayoutEffect(() => {
    const { current } = box;
    return () => current.contains(document.activeElement) && current.closest('section')?.querySelector('[tabindex="-1"]')?.focus();
  }, []);
  return html`<span ref=${box}><${Button} onClick=${onClick} aria-disabled=${loading ? 'true' : undefined}>${loading ? 'Loading…' : children}<//></span>`;
}

/** What only a newer service has, while nodes are being updated. @param {{what: string}} props */
export const Unavailable = ({ what }) => html`<p class="soft none" role="status">This version of the service does not have ${what}.</p>`;

const SLOW_MS = 4000;

/** @param {{rows?: number}} props */
export function Skeleton({ rows = 5 }) {
  const [slow, setSlow] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setSlow(true), SLOW_MS);
    return () => clearTimeout(timer);
  }, []);
  return html`
    <div class="skeleton" role="status">
      <span class=${slow ? 'soft small' : 'vh'}>${slow ? 'Still loading: the service or the connection is slow.' : 'Loading'}</span>
      ${Array.from({ length: rows }, (_, i) => html`<div key=${i}></div>`)}
    </div>
  `;
}

/** @param {{label: string, current: number, limit: number | null, note: string}} props */
export function Meter({ label, current, limit, note }) {
  const id = useId();
  const part = limit === null ? 0 : Math.min(1, limit ? current / limit : 1);
  const kind = limit === null ? '' : part >= 1 ? 'full' : part >= 0.8 ? 'near' : '';
  return html`
    <div class=${`meter ${kind}`}>
      <p class="figure-label" id=${id}>${label}</p>
      <p class="figure">${number(current)} <span>${limit === null ? 'no limit' : `of ${number(limit)}`}</span></p>
      ${limit === null
        ? html`<div class="track open"></div>`
        : html`<div class="track" role="meter" aria-labelledby=${id} aria-valuenow=${Math.min(current, limit)} aria-valuemin="0" aria-valuemax=${limit} aria-valuetext=${`${number(current)} of ${number(limit)}`}><div style=${{ width: `${part * 100}%` }}></div></div>`}
      <p class="soft small">${note}</p>
    </div>
  `;
}

/** A secret that is shown once. @param {{label: string, value: string}} props */
export const Secret = ({ label, value }) => html`
  <div class="secret"><p class="figure-label">${label}</p><div><code>${value}</code><${Copy} text=${value} what=${label} /></div></div>
`;

/** @param {{at: string | null, never?: string}} props */
export const When = ({ at, never = 'never' }) =>
  at ? html`<time datetime=${at} title=${new Date(at).toLocaleString('en-GB')}>${ago(at)}</time>` : html`<span class="soft">${never}</span>`;
