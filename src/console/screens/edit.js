// Changes of a link: edit, the conflict with somebody else's edit, delete, block.
import { html, useEffect, useRef, useState } from '../html.js';
import { api } from '../api.js';
import { drafts, once } from '../drafts.js';
import { areSame, differences, formOf, labelOfField, patch } from '../fields.js';
import { FormFault, Options, readable, TextField, useFirstFault } from '../form.js';
import { useAction } from '../load.js';
import { number } from '../format.js';
import { Button, Confirm, Dialog, Fault, Field, ShortLink, Skeleton, Submit, Tabs } from '../ui.js';

/** @typedef {import('../api.js').ReadLink} ReadLink */
/** @typedef {import('../fields.js').Form} Form */

const FIXED = new Set(['slug', 'tracked']);

/** @param {any} value */
const shown = (value) => (value === true ? 'yes' : value === false ? 'no' : value === '' ? html`<span class="soft">empty</span>` : html`<span class="typed">${value}</span>`);

/** Both versions of what differs; the person chooses for each field that both have changed.
 * @param {{before: Form, theirs: Form, mine: Form, chosen: Record<string, string>, choose: (name: string, side: string) => void}} props */
const Conflict = ({ before, theirs, mine, chosen, choose }) => html`
  <div class="conflict" role="alert">
    <p class="lead">This link was changed meanwhile</p>
    <p>Your edits are not saved. Compare, choose, and save again.</p>
  </div>
  <ul class="versions">
    ${[...new Set([...differences(before, theirs), ...differences(before, mine)])].map((name) => {
      const both = theirs[name] !== before[name] && mine[name] !== before[name] && theirs[name] !== mine[name];
      const isMine = mine[name] !== before[name] && (!both || chosen[name] !== 'theirs');
      return html`
        <li key=${name}>
          <h3>${labelOfField(name)}</h3>
          <dl>
            <div class=${isMine ? '' : 'wins'}><dt>Saved by somebody else</dt><dd>${shown(theirs[name])}</dd></div>
            <div class=${isMine ? 'wins' : ''}><dt>Yours</dt><dd>${mine[name] === before[name] ? html`<span class="soft">not changed</span>` : shown(mine[name])}</dd></div>
          </dl>
          ${both && html`<${Tabs} label=${`Which ${labelOfField(name)} to save`} value=${chosen[name] ?? 'mine'} onChange=${(side) => choose(name, side)} options=${[['theirs', 'Keep theirs'], ['mine', 'Save mine']]} />`}
        </li>
      `;
    })}
  </ul>
`;

/** @param {Form} before @param {Form} theirs @param {Form} mine @param {Record<string, string>} chosen @returns {Form} */
export const merged = (before, theirs, mine, chosen) =>
  Object.fromEntries(Object.keys(mine).map((name) => [name, mine[name] !== before[name] && (chosen[name] !== 'theirs' || theirs[name] === before[name]) ? mine[name] : theirs[name]]));

/** What was edited before, and the state of the link then. @param {string} slot @returns {{edits: Form, base: ReadLink} | undefined} */
function draftOf(slot) {
  const { edits, text, etag } = drafts.get(slot) ?? {};
  return edits && text ? { edits, base: { record: JSON.parse(text), text, etag } } : undefined;
}

/** Where an edit begins. What was saved since a draft was made is shown beside it, unless that is what the draft says.
 * @param {ReturnType<typeof draftOf>} kept @param {ReadLink} link @returns {{base: ReadLink, theirs?: ReadLink, edits: Form}} */
function beginOf(kept, link) {
  if (!kept || areSame({ ...formOf(link), ...kept.edits }, formOf(link))) return { base: link, edits: {} };
  const { base, edits } = kept;
  // The screen behind the dialog may be older than the draft.
  if (base.record.revision > link.record.revision) return { base, edits };
  if (areSame(formOf(base), formOf(link))) return { base: link, edits };
  return { base, theirs: link, edits };
}

/** @param {{link: ReadLink, close: () => void, onSaved: (link: ReadLink) => void}} props */
function EditForm({ link, close, onSaved }) {
  const id = link.record.short_id;
  const slot = `edit/${id}`;
  const kept = useRef(draftOf(slot));
  const begin = useRef(beginOf(kept.current, link));
  const [base, setBase] = useState(begin.current.base);
  const [theirs, setTheirs] = useState(begin.current.theirs);
  const [chosen, setChosen] = useState(/** @type {Record<string, string>} */ ({}));
  const before = formOf(base);
  // Only what was changed is kept as a draft, so that the rest follows the record.
  const [edits, setEdits] = useState(begin.current.edits);
  const latest = useRef(edits);
  const form = { ...before, ...edits };
  const box = useRef(/** @type {any} */ (null));
  const change = (/** @type {Form} */ next, of = base) => {
    const from = formOf(of);
    latest.current = next;
    drafts.keep(slot, differences(from, { ...from, ...next }).length ? { edits: next, text: of.text, etag: of.etag } : undefined);
    setEdits(next);
  };
  const set = (name, value) => change({ ...latest.current, [name]: value });
  const has = (name) => !FIXED.has(name) && (name in base.record || name === 'data');
  /** Goes on from another state of the link. */
  const rebase = (/** @type {ReadLink} */ next, /** @type {Form} */ wanted) => {
    const from = formOf(next);
    change(Object.fromEntries(differences(from, { ...from, ...wanted }).map((name) => [name, wanted[name]])), next);
    setBase(next);
    setTheirs(undefined);
    setChosen({});
  };
  const save = useAction(async () => {
    readable(box.current);
    const from = theirs ?? base;
    const to = theirs ? merged(before, formOf(theirs), form, chosen) : form;
    const body = patch(formOf(from), to, from.text);
    const done = (/** @type {ReadLink} */ saved) => {
      onSaved(saved);
      const isAll = latest.current === edits;
      rebase(saved, isAll ? {} : latest.current);
      // What was typed while the request was under way is not saved yet.
      if (isAll) close();
    };
    try {
      done(body === '{}' ? from : await api.change(id, body, from.etag));
    } catch (error) {
      if (/** @type {any} */ (error).status !== 412) throw error;
      const now = await api.link(id);
      // An earlier try was saved, and its answer was lost.
      if (areSame(formOf(now), to)) return done(now);
      onSaved(now);
      setTheirs(now);
    }
  });
  useFirstFault(save.error, box);
  const submit = (event) => {
    event.preventDefault();
    save.run();
  };
  const back = () => {
    if (!theirs) return;
    rebase(theirs, merged(before, formOf(theirs), form, chosen));
    save.clear();
  };
  const props = { form, set, error: save.error, has };
  return html`
    <form onSubmit=${submit} ref=${box} novalidate>
      ${theirs ? html`<${Conflict} before=${before} theirs=${formOf(theirs)} mine=${form} chosen=${chosen} choose=${(name, side) => setChosen({ ...chosen, [name]: side })} />` : html`
        ${kept.current && html`<p class="note" role="status">Your edits from before are here again. <button type="button" class="plain" onClick=${() => { kept.current = undefined; change({}); }}>Discard them</button></p>`}
        <${TextField} ...${props} name="redirect_url" label="Leads to" area=${2} inputmode="url" hint="In force within 2 seconds, everywhere." />
        <${Options} ...${props} />
      `}
      <${FormFault} error=${save.error} has=${has} />
      <div class="buttons end">
        ${theirs ? html`<${Button} onClick=${back}>Continue editing<//>` : html`<${Button} onClick=${close}>Cancel<//>`}
        <${Submit} busy=${save.busy} error=${save.error} busyText="Saving…">Save<//>
      </div>
    </form>
  `;
}

/** @param {{id: string, known?: ReadLink, onClose: () => void, onSaved: (link: ReadLink) => void}} props */
export function Edit({ id, known, onClose, onSaved }) {
  const [link, setLink] = useState(known);
  const read = useAction(async () => setLink(await api.link(id)));
  useEffect(() => {
    if (!known) read.run();
  }, []);
  return html`
    <${Dialog} title=${`Edit ${id}`} onClose=${onClose} kind="wide">
      ${(close) => {
        if (link) return html`<${EditForm} link=${link} close=${close} onSaved=${onSaved} />`;
        return read.error ? html`<${Fault} error=${read.error} onRetry=${read.run} />` : html`<${Skeleton} />`;
      }}
    <//>
  `;
}

/** @param {{link: import('../api.js').LinkRecord, hits?: number, onClose: () => void, onDone: () => void}} props */
export function Remove({ link, hits, onClose, onDone }) {
  const action = useAction(async () => {
    try {
      await api.remove(link.short_id);
    } catch (error) {
      // Already deleted: what was wanted.
      if (/** @type {any} */ (error).status !== 404) throw error;
    }
    drafts.keep(`edit/${link.short_id}`, undefined);
    // A creation whose answer was lost must not answer with this link.
    once.end('new');
    onDone();
  });
  return html`
    <${Confirm} title="Delete this link?" verb="Delete" keep="Keep it" action=${action} onClose=${onClose}>
      <p><${ShortLink} link=${link} /> will be answered 404 to everyone who follows it${hits ? `, and its ${number(hits)} clicks are forgotten` : ''}. This can’t be undone. Archive it to keep both.</p>
    <//>
  `;
}

/** @param {{id: string, onClose: () => void, onDone: () => void}} props */
export function Block({ id, onClose, onDone }) {
  const [reason, setReason] = useState('');
  const action = useAction(async () => {
    await api.block(id, reason.trim());
    onDone();
  });
  return html`
    <${Confirm} title=${`Block ${id}?`} verb="Block" action=${action} onClose=${onClose}>
      <p>Visitors get an error page until it is unblocked.</p>
      <${Field} label="Reason" hint="The owner of the link can read it.">
        ${(wiring) => html`<input ...${wiring} value=${reason} maxlength="500" onInput=${(event) => setReason(event.target.value)} />`}
      <//>
    <//>
  `;
}
