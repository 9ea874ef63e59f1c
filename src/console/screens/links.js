// The list of links, with search and filters.
import { html, useEffect, useRef, useState } from '../html.js';
import { api, exportPaths } from '../api.js';
import { save } from '../csv.js';
import { useAction, useList } from '../load.js';
import { ago, bare, counted, moment, number, safeHref } from '../format.js';
import { href, refine } from '../router.js';
import { session } from '../session.js';
import { Action, Button, Choice, Copy, Empty, Fault, Field, Icon, Menu, More, Outside, Pill, Select, ShortLink, Skeleton, Theirs, Typed } from '../ui.js';
import { Spark } from '../plots.js';
import { Composer } from './composer.js';
import { Edit, Remove } from './edit.js';

/** @typedef {import('../api.js').LinkRecord} LinkRecord */

/** @type {Record<string, [string, string]>} */
const STATES = { scheduled: ['warn', 'starts later'], expired: ['bad', 'expired'], blocked: ['bad', 'blocked'] };

/** What a person should know of a link beside its name. @param {{link: LinkRecord}} props */
export const Marks = ({ link }) => html`
  ${STATES[link.state] && html`<${Pill} kind=${STATES[link.state][0]}>${STATES[link.state][1]}<//>`}
  ${link.archived && html`<${Pill} kind="warn">archived<//>`}
  ${!link.tracked && html`<${Pill}>not tracked<//>`}
`;

const PARAMETERS = ['q', 'archived', 'state', 'order', 'tag', 'slug_prefix', 'target', 'created_from', 'created_until', 'has_webhooks', 'key_id'];
const FILTERS = PARAMETERS.slice(2);

/** The filters as the API takes them. @param {URLSearchParams} query */
function asked(query) {
  const found = Object.fromEntries(PARAMETERS.map((name) => [name, query.get(name) ?? '']));
  for (const name of ['created_from', 'created_until']) {
    // The times that are shown are the browser's, too.
    const begin = new Date(`${found[name]}T00:00`);
    if (found[name] && !Number.isNaN(begin.getTime())) found[name] = begin.toISOString();
  }
  return found;
}

/** @param {{link: LinkRecord, onEdit: () => void, onArchive: () => void, onRemove: () => void}} props */
function Row({ link, onEdit, onArchive, onRemove }) {
  const { hits } = link;
  const mayWrite = session.may('links:write');
  return html`
    <li class="row">
      <div class="what">
        <div class="line">
          <a class="cover" href=${href(['links', link.short_id])}><${ShortLink} link=${link} /></a>
          <span class="lift"><${Copy} kind="icon" text=${link.short_url} what=${`Copy ${bare(link.short_url)}`} /></span>
          <${Marks} link=${link} />
          ${link.webhooks.length > 0 && html`<${Pill}>${counted(link.webhooks.length, 'webhook')}<//>`}
        </div>
        <p class="target" title=${link.redirect_url}>${link.title && html`<strong><${Theirs}>${link.title}<//></strong> · `}<${Theirs}>${bare(link.redirect_url)}<//></p>
        ${link.tags.length > 0 && html`<p class="tags lift">${link.tags.map((tag) => html`<a key=${tag} class="pill" href=${href(['links'], { tag })}><${Theirs}>${tag}<//></a>`)}</p>`}
      </div>
      <${Spark} values=${hits?.daily ?? Array(30).fill(0)} />
      <p class="count">${hits ? html`<strong>${number(hits.total)}</strong><span class="soft small">${hits.last_7_days ? `+${number(hits.last_7_days)} in 7 days` : 'none in 7 days'}</span>` : html`<strong>–</strong>`}</p>
      <p class="soft small when"><time datetime=${link.created_at} title=${moment(link.created_at)}>${ago(link.created_at)}</time></p>
      <div class="lift">
        <${Menu} label=${`Actions for ${link.short_id}`}>
          ${mayWrite && html`<${Action} icon="edit" onClick=${onEdit}>Edit…<//><${Action} icon="archive" onClick=${onArchive}>${link.archived ? 'Bring back' : 'Archive'}<//>`}
          <${Outside} class="action" data-close to=${safeHref(link.redirect_url)}><${Icon} name="out" />Open target<//>
          ${mayWrite && html`<${Action} icon="trash" kind="danger" onClick=${onRemove}>Delete…<//>`}
        <//>
      </div>
    </li>
  `;
}

const STATE_OPTIONS = [['', 'any'], ['active', 'active'], ['scheduled', 'starts later'], ['expired', 'expired'], ['blocked', 'blocked']];
const INDEXED = [['', 'anything'], ['tag', 'the tag'], ['slug_prefix', 'a name that begins with'], ['target', 'exactly the target']];

/** @param {{query: URLSearchParams, set: (changes: Record<string, string>) => void}} props */
function Filters({ query, set }) {
  const used = INDEXED.find(([name]) => name && query.get(name))?.[0] ?? '';
  const [index, setIndex] = useState(used);
  const [text, setText] = useState(used ? (query.get(used) ?? '') : '');
  const applied = used ? (query.get(used) ?? '') : '';
  useEffect(() => {
    // The address was changed elsewhere: by a tag of a row, or by "back".
    if (used) setIndex(used);
    setText(applied);
  }, [used, applied]);
  const none = { tag: '', slug_prefix: '', target: '' };
  const date = (name, label) => html`
    <${Field} label=${label}>${(wiring) => html`<${Typed} ...${wiring} type="date" value=${query.get(name) ?? ''} onChange=${(/** @type {string} */ day) => set({ [name]: day })} />`}<//>
  `;
  const pick = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string[][]} */ options) => html`
    <${Field} label=${label}>${(wiring) => html`<${Select} ...${wiring} options=${options} value=${query.get(name) ?? ''} onChange=${(value) => set({ [name]: value })} />`}<//>
  `;
  return html`
    <form class="filters" onSubmit=${(event) => { event.preventDefault(); set({ ...none, ...(index && { [index]: text.trim() }), ...(index === 'slug_prefix' && { order: '' }) }); }}>
      <${Field} label="Has">${(wiring) => html`<${Select} ...${wiring} options=${INDEXED} value=${index} onChange=${(value) => { setIndex(value); if (!value) set(none); }} />`}<//>
      ${index && html`
        <${Field} label="Text">${(wiring) => html`<span class="compose"><input ...${wiring} value=${text} onInput=${(event) => setText(event.target.value)} /><button type="submit" class="button"><span>Apply</span></button></span>`}<//>
      `}
      ${pick('state', 'State', STATE_OPTIONS)}
      ${pick('has_webhooks', 'Webhooks', [['', 'with or without'], ['true', 'with'], ['false', 'without']])}
      ${index !== 'slug_prefix' && used !== 'slug_prefix' && pick('order', 'Order', [['', 'newest first'], ['oldest', 'oldest first']])}
      ${date('created_from', 'Made from')}${date('created_until', 'Made before')}
      ${session.may('keys:manage') && html`<${Field} label="Key id">${(wiring) => html`<${Typed} ...${wiring} class="mono" value=${query.get('key_id') ?? ''} onChange=${(/** @type {string} */ id) => set({ key_id: id.trim() })} />`}<//>`}
    </form>
  `;
}

/** The search box answers while one types, but not to each key. @param {{value: string, onSearch: (text: string) => void}} props */
function Search({ value, onSearch }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => {
    if (value !== text.trim()) setText(value);
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const type = (event) => {
    const typed = event.target.value;
    setText(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onSearch(typed.trim()), 300);
  };
  return html`<label class="search"><${Icon} name="search" /><span class="vh">Search links</span><input type="search" maxlength="100" placeholder="Search names, titles, targets and tags" value=${text} onInput=${type} /></label>`;
}

/** @param {{query: URLSearchParams}} props */
const NoLinks = ({ query }) => {
  if (query.get('q') || FILTERS.some((name) => query.get(name))) return html`<${Empty} title="Nothing found">No link matches this search and these filters. <a href=${href(['links'])}>Show all links</a><//>`;
  if (query.get('archived') === 'true') return html`<${Empty} title="Nothing archived">Archived links still redirect and keep their clicks. They are only left out of this list.<//>`;
  return html`<${Empty} title="No links yet">Paste an address above to make your first short link.<//>`;
};

/** What was done, with a way back. @param {{text: string, undo?: () => void, onClose: () => void}} props */
const Notice = ({ text, undo, onClose }) => html`
  <div class="notice" role="status"><span>${text}</span>${undo && html`<button type="button" class="plain" onClick=${undo}>Undo</button>`}<button type="button" class="plain" onClick=${onClose}>Close</button></div>
`;

/** @param {{query: URLSearchParams}} props */
export function Links({ query }) {
  const filters = asked(query);
  const list = useList(
    async (cursor, signal) => {
      const page = await api.links({ ...filters, cursor, limit: 25, include: 'hits' }, signal);
      return { rows: page.links, next: page.next_cursor };
    },
    [JSON.stringify(filters)],
  );
  const [editing, setEditing] = useState(/** @type {string | undefined} */ (undefined));
  const [removing, setRemoving] = useState(/** @type {LinkRecord | undefined} */ (undefined));
  const [notice, setNotice] = useState(/** @type {any} */ (undefined));
  const isFiltered = FILTERS.some((name) => query.get(name));
  const [open, setOpen] = useState(isFiltered);
  const title = useRef(/** @type {any} */ (null));
  useEffect(() => {
    document.title = 'Links · Signpost';
  }, []);
  const without = (id) => list.change((rows) => rows.filter(({ short_id }) => short_id !== id));
  const archive = useAction(async (/** @type {LinkRecord} */ link, /** @type {boolean} */ archived) => {
    const { record } = await api.change(link.short_id, JSON.stringify({ archived }));
    const fits = (query.get('archived') || 'false') === 'any' || (query.get('archived') === 'true') === archived;
    list.change((rows) => (fits ? rows.map((row) => (row.short_id === link.short_id ? { ...row, ...record } : row)) : rows.filter(({ short_id }) => short_id !== link.short_id)));
    setNotice({ text: `${link.short_id} is ${archived ? 'archived. It still redirects.' : 'back.'}`, undo: () => archive.run(link, !archived).then((done) => done && list.reload()) });
    title.current?.focus();
  });
  const download = useAction(async () => save(await api.csv(exportPaths.links, filters), 'links.csv'));
  const rows = list.rows ?? [];
  return html`
    <h1 class="vh">Links</h1>
    ${session.may('links:write') && html`<${Composer} onMade=${list.reload} />`}
    ${!session.may('links:read') ? html`<section class="panel"><${Empty} title="This key can’t list links">It lacks the scope links:read.<//></section>` : html`
    <section class="panel list" aria-labelledby="list-title" aria-busy=${String(list.loading)}>
      <header class="tools">
        <h2 id="list-title" class="vh" tabindex="-1" ref=${title}>Your links</h2>
        <${Choice} label="Which links" path=${['links']} query=${query} name="archived" value=${query.get('archived') ?? ''} options=${[['', 'Current'], ['true', 'Archived'], ['any', 'Both']]} />
        <${Search} value=${query.get('q') ?? ''} onSearch=${(q) => refine({ q })} />
        <${Button} aria-expanded=${String(open)} onClick=${() => setOpen(!open)}>Filters${isFiltered ? ' (on)' : ''}<//>
        <${Menu} label="More for this list"><${Action} icon="save" onClick=${() => download.run()}>Download as CSV<//><//>
      </header>
      ${open && html`<${Filters} query=${query} set=${refine} />`}
      ${notice && html`<${Notice} ...${notice} onClose=${() => setNotice(undefined)} />`}
      ${[archive.error, download.error].filter(Boolean).map((error, i) => html`<${Fault} key=${i} error=${error} />`)}
      ${list.error && html`<${Fault} error=${list.error} onRetry=${list.rows ? list.more : list.reload} />`}
      ${!list.rows && list.loading && !list.error && html`<${Skeleton} />`}
      ${list.rows && !list.error && rows.length === 0 && !list.next && html`<${NoLinks} query=${query} />`}
      ${rows.length > 0 && html`
        <div class="heads" aria-hidden="true"><span>Link</span><span>Last 30 days</span><span class="num">Clicks</span><span>Made</span></div>
        <ul class="rows">${rows.map((link) => html`
          <${Row} key=${link.short_id} link=${link} onEdit=${() => setEditing(link.short_id)} onRemove=${() => setRemoving(link)} onArchive=${() => archive.run(link, !link.archived)} />
        `)}</ul>
      `}
      ${list.rows && list.next && !list.error && html`
        <div class="after">${rows.length === 0 && html`<p class="soft">Nothing found so far.</p>`}<${More} onClick=${list.more} loading=${list.loading}>${rows.length ? 'Show more' : 'Search on'}<//></div>
      `}
    </section>`}
    ${removing && html`<${Remove} link=${removing} hits=${removing.hits?.total} onClose=${() => setRemoving(undefined)} onDone=${() => { without(removing.short_id); title.current?.focus(); }} />`}
    ${editing && html`<${Edit} id=${editing} onClose=${() => setEditing(undefined)} onSaved=${({ record }) => list.change((all) => all.map((row) => (row.short_id === record.short_id ? { ...row, ...record } : row)))} />`}
  `;
}

