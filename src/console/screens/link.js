// One link.
import { html, useEffect, useState } from '../html.js';
import { api } from '../api.js';
import { useAction, useLoad, useSecondChance } from '../load.js';
import { bare, moment, safeHref } from '../format.js';
import { memberText, pretty } from '../json.js';
import { go, href } from '../router.js';
import { session } from '../session.js';
import { Action, Button, Copy, Empty, Fault, Icon, Menu, Outside, ShortLink, Skeleton, Theirs } from '../ui.js';
import { useClicks } from './clicks.js';
import { Block, Edit, Remove } from './edit.js';
import { Marks } from './links.js';
import { Webhooks } from './webhooks.js';

/** @typedef {import('../api.js').ReadLink} ReadLink */

const SIZES = [['5', 'Small'], ['10', 'Medium'], ['20', 'Large']];

/** @param {{link: import('../api.js').LinkRecord}} props */
function Qr({ link }) {
  const [scale, setScale] = useState('10');
  const [dark, setDark] = useState('#000000');
  const [light, setLight] = useState('#ffffff');
  const [clear, setClear] = useState(false);
  const [fault, setFault] = useState(/** @type {any} */ (undefined));
  const paper = clear ? 'transparent' : light;
  const colours = { ...(dark !== '#000000' && { dark }), ...(paper !== '#ffffff' && { light: paper }) };
  const src = api.qr(link.short_id, colours);
  const refused = async () => {
    const why = await api.qrFault(src);
    setFault(why && { src, why });
  };
  const told = fault?.src === src ? fault.why : undefined;
  useSecondChance(told, () => setFault(undefined));
  const save = (/** @type {string} */ format, options = {}) => html`
    <a class="button" href=${api.qr(link.short_id, { format, ...options, ...colours })} download=${`${link.short_id}.${format}`}><${Icon} name="save" /><span>${format.toUpperCase()}</span></a>
  `;
  // A colour picker tells each colour that the pointer crosses; `change` comes once.
  const colour = (/** @type {string} */ label, /** @type {string} */ value, /** @type {(value: string) => void} */ set, off = false) =>
    html`<label>${label}<input type="color" value=${value} disabled=${off} onChange=${(event) => set(event.target.value)} /></label>`;
  return html`
    <section class="panel qr-panel" aria-labelledby="qr-title">
      <h2 class="vh" id="qr-title">QR code</h2>
      ${told ? html`<p class="fault qr-fault" role="alert"><${Icon} name="alert" /><span>${told.errors[0]?.detail ? `The colours can’t be used: ${told.errors[0].detail}` : told.detail}</span></p>`
        : html`<img class=${`qr ${clear ? 'see-through' : ''}`} src=${src} alt=${`QR code of ${link.short_url}`} width="192" height="192" onError=${refused} />`}
      <div class="qr-options">
        <label>Size of PNG<select value=${scale} onChange=${(event) => setScale(event.target.value)}>${SIZES.map(([value, text]) => html`<option key=${value} value=${value} selected=${value === scale}>${text}</option>`)}</select></label>
        ${colour('Modules', dark, setDark)}${colour('Background', light, setLight, clear)}
        <label>Transparent<input type="checkbox" checked=${clear} onChange=${(event) => setClear(event.target.checked)} /></label>
        <div class="buttons">${save('svg')}${save('png', { scale })}</div>
      </div>
    </section>
  `;
}

/** @param {{term: string, children?: any}} props */
const Fact = ({ term, children }) => html`<div><dt>${term}</dt><dd>${children}</dd></div>`;

/** What is set of the link's fields. @param {{link: ReadLink}} props */
function Facts({ link: { record: one, text } }) {
  const data = memberText(text, 'data') ?? '{}';
  return html`
    <section class="panel" aria-labelledby="facts-title">
      <header class="tools"><h2 id="facts-title">Details</h2></header>
      <dl class="facts">
        ${one.title && html`<${Fact} term="Title"><${Theirs}>${one.title}<//><//>`}
        ${one.tags?.length > 0 && html`<${Fact} term="Tags"><span class="tags">${one.tags.map((tag) => html`<a key=${tag} class="pill" href=${href(['links'], { tag })}><${Theirs}>${tag}<//></a>`)}</span><//>`}
        ${one.notes && html`<${Fact} term="Notes"><span class="typed"><${Theirs}>${one.notes}<//></span><//>`}
        ${one.block_reason && html`<${Fact} term="Blocked because"><${Theirs}>${one.block_reason}<//><//>`}
        <${Fact} term="Made">${moment(one.created_at)}<//>
        ${one.updated_at !== one.created_at && html`<${Fact} term="Changed">${moment(one.updated_at)}<//>`}
        ${one.not_before && html`<${Fact} term="Starts">${moment(one.not_before)}<//>`}
        ${one.expires_at && html`<${Fact} term="Ends">${moment(one.expires_at)}<//>`}
        ${one.fallback_url && html`<${Fact} term="Afterwards leads to"><${Outside} to=${safeHref(one.fallback_url)}><${Theirs}>${bare(one.fallback_url)}<//><//><//>`}
        ${one.redirect_status !== undefined && html`<${Fact} term="Redirects with">${one.redirect_status}${one.cache_seconds ? `, kept by browsers for ${one.cache_seconds} s` : ''}<//>`}
        ${one.skip_bots && html`<${Fact} term="Bots">fire no webhooks<//>`}
      </dl>
      ${data !== '{}' && html`<h3>Data</h3><pre tabindex="0" aria-label="Data of the link"><code>${pretty(data)}</code></pre>`}
    </section>
  `;
}

/** @param {{link: ReadLink, query: URLSearchParams}} props */
function Overview({ link, query }) {
  const { main, below } = useClicks(link.record.short_id, link.record.created_at, query);
  const mayAnalyse = session.may('analytics:read');
  return html`
    <div class="beside">
      ${mayAnalyse ? main : html`<section class="panel"><${Empty} title="This key can’t see clicks">It lacks the scope analytics:read.<//></section>`}
      <${Qr} link=${link.record} />
    </div>
    ${mayAnalyse && below}
    <${Facts} link=${link} />
  `;
}

/** @param {{id: string, tab: string, count: number}} props */
const Parts = ({ id, tab, count }) => html`
  <nav class="parts" aria-label="Parts of the link">
    <a href=${href(['links', id])} aria-current=${tab === '' ? 'page' : undefined}>Overview</a>
    <a href=${href(['links', id, 'webhooks'])} aria-current=${tab === 'webhooks' ? 'page' : undefined}>Webhooks${count > 0 && html` <span class="soft">${count}</span>`}</a>
  </nav>
`;

/** @param {{link: ReadLink, reload: () => void, set: (link: ReadLink) => void}} props */
function Actions({ link, reload, set }) {
  const [open, setOpen] = useState('');
  const { record: one } = link;
  const close = () => setOpen('');
  const archive = useAction(async () => set(await api.change(one.short_id, JSON.stringify({ archived: !one.archived }))));
  const unblock = useAction(async () => {
    await api.unblock(one.short_id);
    reload();
  });
  const mayWrite = session.may('links:write');
  return html`
    <div class="buttons">
      <${Copy} kind="primary" text=${one.short_url} label="Copy link" />
      ${mayWrite && html`<${Button} icon="edit" onClick=${() => setOpen('edit')}>Edit<//>`}
      <${Menu} label="More actions">
        ${mayWrite && html`<${Action} icon="archive" onClick=${() => archive.run()}>${one.archived ? 'Bring back' : 'Archive'}<//>`}
        <${Outside} class="action" data-close to=${safeHref(one.short_url)}><${Icon} name="out" />Follow it (counts as a click)<//>
        ${one.preview && html`<${Outside} class="action" data-close to=${safeHref(`${one.short_url}+`)}><${Icon} name="eye" />Preview page<//>`}
        ${session.isRoot && (one.block_reason ? html`<${Action} icon="block" onClick=${() => unblock.run()}>Unblock<//>` : html`<${Action} icon="block" onClick=${() => setOpen('block')}>Block…<//>`)}
        ${mayWrite && html`<${Action} icon="trash" kind="danger" onClick=${() => setOpen('remove')}>Delete…<//>`}
      <//>
    </div>
    ${[archive.error, unblock.error].filter(Boolean).map((error, i) => html`<${Fault} key=${i} error=${error} />`)}
    ${open === 'remove' && html`<${Remove} link=${one} onClose=${close} onDone=${() => go(['links'])} />`}
    ${open === 'edit' && html`<${Edit} id=${one.short_id} known=${link} onClose=${close} onSaved=${set} />`}
    ${open === 'block' && html`<${Block} id=${one.short_id} onClose=${close} onDone=${reload} />`}
  `;
}

const NAME = /^[0-9A-Za-z_-]{1,64}$/;
const MISSING = { status: 404, title: 'There is no such link', detail: 'It was deleted, or the address has a typing error.' };

/** @param {{id: string, tab?: string, query: URLSearchParams}} props */
export function Link({ id, tab = '', query }) {
  const link = useLoad(async (signal) => {
    if (!NAME.test(id)) throw MISSING;
    return api.link(id, signal);
  }, [id]);
  useEffect(() => {
    document.title = `${id} · Signpost`;
  }, [id]);
  const back = html`<p class="back"><a href=${href(['links'])}><${Icon} name="back" />Links</a></p>`;
  if (link.error) {
    const isMissing = link.error.status === 404;
    return html`${back}<h1 class="vh">Link ${id}</h1><section class="panel"><${Fault} error=${isMissing ? { ...MISSING, requestId: link.error.requestId } : link.error} onRetry=${isMissing ? undefined : link.reload} /></section>`;
  }
  if (!link.data) return html`${back}<h1 class="vh">Link ${id}</h1><section class="panel"><${Skeleton} /></section>`;
  const { record: one } = link.data;
  return html`
    ${back}
    <header class="title">
      <div>
        <h1><${ShortLink} link=${one} big /></h1>
        <p class="leads">leads to <${Outside} to=${safeHref(one.redirect_url)}><${Theirs}>${bare(one.redirect_url)}<//><//></p>
        <p class="soft small marks"><${Marks} link=${one} /></p>
      </div>
      <${Actions} link=${link.data} reload=${link.reload} set=${(/** @type {ReadLink} */ next) => link.change(() => next)} />
    </header>
    <${Parts} id=${id} tab=${tab} count=${one.webhooks.length} />
    ${tab === 'webhooks' ? html`<${Webhooks} link=${one} query=${query} />` : html`<${Overview} link=${link.data} query=${query} />`}
  `;
}
