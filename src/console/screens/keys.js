// Keys and usage.
import { html, useEffect, useId, useRef, useState } from '../html.js';
import { api, freshKey } from '../api.js';
import { once, useDraft } from '../drafts.js';
import { useAction, useList, useLoad } from '../load.js';
import { localTime, month, monthAfter, number } from '../format.js';
import { session } from '../session.js';
import { faultOf, FormFaults } from '../fields.js';
import { readable, useFirstFault } from '../form.js';
import { Action, Button, Check, Confirm, Dialog, Empty, Fault, Field, Menu, Meter, More, Pill, Secret, Select, Skeleton, Submit, Theirs, When } from '../ui.js';

/** @typedef {import('../session.js').KeyRecord} KeyRecord */

export const SCOPES = [
  ['links:write', 'Make and change links'], ['links:read', 'See links'], ['analytics:read', 'See clicks'], ['usage:read', 'See usage'],
  ['webhooks:read', 'See deliveries'], ['webhooks:write', 'Test and replay webhooks'], ['keys:manage', 'Make and revoke keys'],
];

function Usage() {
  const { data, error, reload } = useLoad((signal) => api.usage(signal), []);
  if (error) return html`<section class="panel"><h2>Usage</h2><${Fault} error=${error} onRetry=${reload} /></section>`;
  if (!data) return html`<section class="panel"><${Skeleton} rows=${2} /></section>`;
  const { links_created: links, webhook_deliveries: sent, hits_served: hits } = data.usage;
  const left = (/** @type {any} */ { current, limit }, /** @type {string} */ past) => (limit === null ? '' : current >= limit ? past : `${number(limit - current)} left`);
  return html`
    <section class="panel" aria-labelledby="usage-title">
      <header class="tools"><h2 id="usage-title">Usage in ${month(data.month)}</h2><p class="soft small">of this key · starts again on ${monthAfter(data.month)}, UTC</p></header>
      <div class="meters">
        <${Meter} label="Links made" ...${links} note=${left(links, 'No more until then')} />
        <${Meter} label="Webhook deliveries" ...${sent} note=${left(sent, 'Further ones are recorded as failed')} />
        <${Meter} label="Clicks served" ...${hits} note="Links always redirect" />
      </div>
    </section>
  `;
}

/** @returns {[string, string][]} */
const expiries = () => [['', session.self?.expires_at ? 'with this key' : 'never'], ['30', 'in 30 days'], ['90', 'in 90 days'], ['365', 'in a year'], ['date', 'on a date']];

/** The fields of a key. @param {{form: any, set: (changes: any) => void, error: any}} props */
function KeyFields({ form, set, error }) {
  const scopesFault = useId();
  const toggle = (scope) => set({ scopes: form.scopes.includes(scope) ? form.scopes.filter((one) => one !== scope) : [...form.scopes, scope] });
  const fault = (name) => faultOf(error, name, form);
  return html`
    <${Field} label="Name" hint="For people: who or what uses it." error=${fault('name')}>
      ${(wiring) => html`<input ...${wiring} value=${form.name} maxlength="100" autocomplete="off" onInput=${(event) => set({ name: event.target.value })} placeholder="newsletter" />`}
    <//>
    <fieldset aria-describedby=${fault('scopes') && scopesFault}><legend>Scopes</legend><div class="two">${SCOPES.map(([scope, text]) => html`
      <${Check} key=${scope} checked=${form.scopes.includes(scope)} disabled=${!session.may(scope) && !form.scopes.includes(scope)} onChange=${() => toggle(scope)}>${text}<code class="soft">${scope}</code><//>
    `)}</div>${fault('scopes') && html`<p class="fault" id=${scopesFault}>${fault('scopes')}</p>`}</fieldset>
    <div class="two">
      <${Field} label="Tier" error=${fault('tier')}>${(wiring) => html`<${Select} ...${wiring} options=${session.self?.tier === 'Pro' || form.tier === 'Pro' ? [['Free', 'Free'], ['Pro', 'Pro']] : [['Free', 'Free']]} value=${form.tier} onChange=${(tier) => set({ tier })} />`}<//>
      <${Field} label="Expires" error=${form.expiry === 'date' ? undefined : fault('expires_at')}>${(wiring) => html`<${Select} ...${wiring} options=${expiries()} value=${form.expiry} onChange=${(expiry) => set({ expiry })} />`}<//>
    </div>
    ${form.expiry === 'date' && html`<${Field} label="Date and time" error=${fault('expires_at')}>${(wiring) => html`<input ...${wiring} name="expires_at" type="datetime-local" value=${form.date} onInput=${(event) => set({ date: event.target.value })} />`}<//>`}
  `;
}

/** @param {any} form */
function expiryOf(form) {
  if (form.expiry === 'date') {
    if (!form.date) throw new FormFaults([{ pointer: '/expires_at', detail: 'must be a date and a time' }]);
    return new Date(form.date).toISOString();
  }
  return form.expiry ? new Date(Date.now() + Number(form.expiry) * 86_400_000).toISOString() : null;
}

/** The problem, but for faults that stand at the fields. @param {{error: any}} props */
const KeyFault = ({ error }) => (error && !((error.slug === 'validation' || error instanceof FormFaults) && error.errors.every(({ pointer }) => /^\/(name|scopes|tier|expires_at)\b/.test(pointer ?? ''))) ? html`<${Fault} error=${error} />` : null);

/** @param {{onClose: () => void, onMade: (made: any) => void}} props */
function NewKey({ onClose, onMade }) {
  const usual = SCOPES.map(([scope]) => scope).filter((scope) => scope !== 'keys:manage' && session.may(scope));
  const [form, setForm, forget] = useDraft('key', { name: '', scopes: usual, tier: 'Free', expiry: '', date: '' });
  const box = useRef(/** @type {any} */ (null));
  const action = useAction(async () => {
    readable(box.current);
    const { time, key } = once.of('key', JSON.stringify(form), () => ({ key: freshKey(), time: expiryOf(form) ?? '' }));
    const made = await once.during('key', () => api.createKey({ name: form.name.trim(), tier: form.tier, scopes: form.scopes, ...(time && { expires_at: time }) }, key));
    forget(form);
    onMade(made);
  });
  useFirstFault(action.error, box);
  return html`
    <${Dialog} title="New key" onClose=${onClose}>
      ${(close) => html`
        <form novalidate ref=${box} onSubmit=${async (event) => { event.preventDefault(); if (await action.run()) close(); }}>
          <${KeyFields} form=${form} error=${action.error} set=${(changes) => setForm((last) => ({ ...last, ...changes }))} />
          <${KeyFault} error=${action.error} />
          <div class="buttons end"><${Button} onClick=${close}>Cancel<//><${Submit} busy=${action.busy} error=${action.error} disabled=${!form.name.trim()} busyText="Making…">Make key<//></div>
        </form>
      `}
    <//>
  `;
}

/** @param {{one: KeyRecord, onClose: () => void, onDone: () => void}} props */
function Change({ one, onClose, onDone }) {
  const first = { name: one.name, scopes: one.scopes, tier: one.tier, expiry: one.expires_at ? 'date' : '', date: localTime(one.expires_at) };
  // No draft: scopes that were ticked and cancelled must not come back days later.
  const [form, setForm] = useState(first);
  const box = useRef(/** @type {any} */ (null));
  const action = useAction(async () => {
    readable(box.current);
    const expires = form.date === first.date && form.expiry === first.expiry ? one.expires_at : expiryOf(form);
    const body = {
      ...(form.name.trim() !== one.name && { name: form.name.trim() }), ...(form.tier !== one.tier && { tier: form.tier }),
      ...(form.scopes.toSorted().join() !== one.scopes.toSorted().join() && { scopes: form.scopes }), ...(expires !== one.expires_at && { expires_at: expires }),
    };
    if (Object.keys(body).length) await api.changeKey(one.key_id, body);
    onDone();
  });
  useFirstFault(action.error, box);
  return html`
    <${Dialog} title=${`Change “${one.name}”`} onClose=${onClose}>
      ${(close) => html`
        <form novalidate ref=${box} onSubmit=${async (event) => { event.preventDefault(); if (await action.run()) close(); }}>
          <${KeyFields} form=${form} error=${action.error} set=${(changes) => setForm((last) => ({ ...last, ...changes }))} />
          <${KeyFault} error=${action.error} />
          <div class="buttons end"><${Button} onClick=${close}>Cancel<//><${Submit} busy=${action.busy} error=${action.error} busyText="Saving…">Save<//></div>
        </form>
      `}
    <//>
  `;
}

const GRACES = [['0', 'not at all: it ends at once'], ['3600', 'an hour'], ['86400', 'a day'], ['604800', 'a week']];

/** @param {{one: KeyRecord, onClose: () => void, onMade: (made: any) => void}} props */
function Rotate({ one, onClose, onMade }) {
  const isSelf = one.key_id === session.self?.key_id;
  const [grace, setGrace] = useState('3600');
  const [hook, setHook] = useState(false);
  const action = useAction(async () => {
    const made = await api.rotateKey(one.key_id, { grace_seconds: Number(grace), rotate_webhook_secret: hook });
    // The console goes on with the new secret of its own key.
    if (isSelf && made.key) {
      const { key, webhook_secret: _, ...record } = made;
      session.open(key, record);
    }
    onMade(made);
  });
  return html`
    <${Dialog} title=${`Rotate “${one.name}”`} onClose=${onClose}>
      ${(close) => html`
        <form onSubmit=${async (event) => { event.preventDefault(); if (await action.run()) close(); }}>
          <p>The key gets a new secret. Its links, usage and counters stay.${isSelf ? ' You stay signed in.' : ''}</p>
          <${Field} label="The old secret still works for" hint="Long enough to change it wherever it is used.">${(wiring) => html`<${Select} ...${wiring} options=${GRACES} value=${grace} onChange=${setGrace} />`}<//>
          <${Check} checked=${hook} onChange=${setHook}>Also replace the webhook secret. Until the old one ends, both sign.<//>
          ${action.error && html`<${Fault} error=${action.error} />`}
          <div class="buttons end"><${Button} onClick=${close}>Cancel<//><${Submit} busy=${action.busy} error=${action.error} busyText="Rotating…">Rotate<//></div>
        </form>
      `}
    <//>
  `;
}

/** @param {{one: KeyRecord, onClose: () => void, onDone: () => void}} props */
function Revoke({ one, onClose, onDone }) {
  const [below, setBelow] = useState(false);
  const action = useAction(async () => {
    try {
      await api.revokeKey(one.key_id, below ? 'revoke' : 'keep');
    } catch (error) {
      // Already revoked: what was wanted.
      if (/** @type {any} */ (error).status !== 404) throw error;
    }
    // A creation whose answer was lost must not answer with this key.
    once.end('key');
    onDone();
  });
  return html`
    <${Confirm} title=${`Revoke “${one.name}”?`} verb="Revoke" keep="Keep it" action=${action} onClose=${onClose}>
      <p>Everyone who uses it is refused within 5 seconds. This can’t be undone. Its links still redirect.</p>
      ${one.scopes.includes('keys:manage') && html`<${Check} checked=${below} onChange=${setBelow}>Also revoke all keys that were made with it, and with those<//>`}
    <//>
  `;
}

/** Secrets that nobody has confirmed yet. In memory alone, so that a change of screens loses none. @type {any[]} */
let unconfirmed = [];
/** The key that made them. @type {string | undefined} */
let secretsOwner;
const warnOfSecrets = (event) => event.preventDefault();

/** @param {any[]} next */
function setUnconfirmed(next) {
  unconfirmed = next;
  secretsOwner = session.self?.key_id;
  removeEventListener('beforeunload', warnOfSecrets);
  if (next.length) addEventListener('beforeunload', warnOfSecrets);
}

session.watch(() => unconfirmed.length && !session.isStill(secretsOwner) && setUnconfirmed([]));

/** @param {{made: any, onDone: () => void}} props */
const Once = ({ made, onDone }) => html`
  <div class="once">
    <h3>The secret of “<${Theirs}>${made.name}<//>”, shown only once</h3>
    ${made.key || made.webhook_secret
      ? html`<p class="soft">The service stores only its hash. Copy it now.</p>`
      : html`<p>The key was made, but the answer with its secret was lost on the way. Rotate the key to get a new secret.</p>`}
    ${made.key && html`<${Secret} label="API key" value=${made.key} />`}
    ${made.webhook_secret && html`<${Secret} label="Webhook secret" value=${made.webhook_secret} />`}
    <${Button} onClick=${onDone}>${made.key || made.webhook_secret ? 'I have copied it' : 'Close'}<//>
  </div>
`;

/** @param {{one: KeyRecord, names: Map<string, string>, open: (what: string, one: KeyRecord) => void}} props */
function KeyRow({ one, names, open }) {
  const isSelf = one.key_id === session.self?.key_id;
  const isOver = one.expires_at !== null && Date.parse(one.expires_at) < Date.now();
  const isRoot = one.name === 'root' && one.created_by === null;
  return html`
    <tr>
      <th scope="row"><span class="name"><${Theirs}>${one.name}<//></span>${isSelf && html` <${Pill} kind="ok">this key<//>`}<br /><code class="soft">${one.prefix}…</code>${one.created_by && names.has(one.created_by) && html` <span class="soft small">by <${Theirs}>${names.get(one.created_by)}<//></span>`}</th>
      <td data-th="Tier">${one.tier}</td>
      <td data-th="Scopes" class="scopes">${one.scopes.length === SCOPES.length ? 'all' : one.scopes.length ? one.scopes.join(', ') : 'none'}</td>
      <td data-th="Last used"><${When} at=${one.last_used_at} /></td>
      <td data-th="Expires">${isOver ? html`<${Pill} kind="bad">expired<//>` : html`<${When} at=${one.expires_at} />`}</td>
      <td class="num"><${Menu} label=${`Actions for ${one.name}`}>
        <${Action} icon="turn" onClick=${() => open('rotate', one)}>Rotate…<//>
        ${!isSelf && !isRoot && html`<${Action} icon="edit" onClick=${() => open('change', one)}>Change…<//><${Action} icon="trash" kind="danger" onClick=${() => open('revoke', one)}>Revoke…<//>`}
      <//></td>
    </tr>
  `;
}

/** @param {{list: ReturnType<typeof useList<KeyRecord>>, open: (what: string, one: KeyRecord) => void}} props */
function KeyTable({ list, open }) {
  const rows = list.rows ?? [];
  const names = new Map(rows.map(({ key_id, name }) => [key_id, name]));
  return html`
    <table class="keys">
      <thead><tr><th scope="col">Name</th><th scope="col">Tier</th><th scope="col">Scopes</th><th scope="col">Last used</th><th scope="col">Expires</th><th scope="col"><span class="vh">Actions</span></th></tr></thead>
      <tbody>${rows.map((one) => html`<${KeyRow} key=${one.key_id} one=${one} names=${names} open=${open} />`)}</tbody>
    </table>
    ${list.next && html`<div class="after"><${More} onClick=${list.more} loading=${list.loading} /></div>`}
  `;
}

function Managed() {
  const list = useList(async (cursor, signal) => {
    const page = await api.keys({ cursor, limit: 50 }, signal);
    return { rows: page.api_keys, next: page.next_cursor };
  }, []);
  const [shown, setShown] = useState({ what: '', one: /** @type {any} */ (undefined) });
  const [secrets, setSecrets] = useState(unconfirmed);
  const title = useRef(/** @type {any} */ (null));
  const isMade = useRef(false);
  const isOpen = useRef(false);
  isOpen.current = shown.what !== '';
  const close = () => {
    setShown({ what: '', one: undefined });
    // The dialog has given the focus back by now. A new secret stands below the heading.
    if (isMade.current) title.current?.focus();
    isMade.current = false;
  };
  const confirm = (/** @type {any[]} */ next) => {
    setUnconfirmed(next);
    setSecrets(next);
  };
  const show = (made) => {
    confirm([made, ...unconfirmed]);
    list.reload();
    // The dialog may have been closed before the answer came.
    if (isOpen.current) isMade.current = true;
    else title.current?.focus();
  };
  const { what, one } = shown;
  return html`
    <section class="panel" aria-labelledby="keys-title" aria-busy=${String(list.loading)}>
      <header class="tools"><h2 id="keys-title" tabindex="-1" ref=${title}>Keys</h2><${Button} icon="plus" kind="primary" onClick=${() => setShown({ what: 'new', one: undefined })}>New key<//></header>
      <div role="status">${secrets.map((made, i) => html`<${Once} key=${made.key_id + i} made=${made} onDone=${() => confirm(secrets.filter((other) => other !== made))} />`)}</div>
      ${list.error && html`<${Fault} error=${list.error} onRetry=${list.rows ? list.more : list.reload} />`}
      ${!list.rows && list.loading && !list.error && html`<${Skeleton} rows=${3} />`}
      ${list.rows && html`<${KeyTable} list=${list} open=${(/** @type {string} */ next, /** @type {KeyRecord} */ key) => setShown({ what: next, one: key })} />`}
    </section>
    ${what === 'new' && html`<${NewKey} onClose=${close} onMade=${show} />`}
    ${what === 'rotate' && html`<${Rotate} one=${one} onClose=${close} onMade=${show} />`}
    ${what === 'change' && html`<${Change} one=${one} onClose=${close} onDone=${list.reload} />`}
    ${what === 'revoke' && html`<${Revoke} one=${one} onClose=${close} onDone=${list.reload} />`}
  `;
}

/** A key may rotate itself without the scope for others. */
function OwnKey() {
  const [rotating, setRotating] = useState(false);
  const [secrets, setSecrets] = useState(unconfirmed);
  const confirm = (/** @type {any[]} */ next) => {
    setUnconfirmed(next);
    setSecrets(next);
  };
  const self = session.self;
  return html`
    <section class="panel" aria-labelledby="keys-title">
      <header class="tools"><h2 id="keys-title">Keys</h2><${Button} icon="turn" onClick=${() => setRotating(true)}>Rotate this key…<//></header>
      <div role="status">${secrets.map((made, i) => html`<${Once} key=${i} made=${made} onDone=${() => confirm(secrets.filter((other) => other !== made))} />`)}</div>
      <${Empty} title="This key can’t manage other keys">It lacks the scope keys:manage.<//>
    </section>
    ${rotating && self && html`<${Rotate} one=${self} onClose=${() => setRotating(false)} onMade=${(made) => confirm([made, ...unconfirmed])} />`}
  `;
}

export function Keys() {
  useEffect(() => {
    document.title = 'Keys and usage · Signpost';
  }, []);
  // The scopes of this key may have been changed since the sign-in.
  useLoad(async () => session.update(await api.self()), []);
  return html`
    <h1 class="vh">Keys and usage</h1>
    ${session.may('usage:read') ? html`<${Usage} />` : html`<section class="panel"><h2>Usage</h2><p class="soft none">This key lacks the scope usage:read.</p></section>`}
    ${session.may('keys:manage') ? html`<${Managed} />` : html`<${OwnKey} />`}
  `;
}
