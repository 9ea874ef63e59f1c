// Makes one link.
import { html, useLayoutEffect, useRef, useState } from '../html.js';
import { api, freshKey } from '../api.js';
import { once, useDraft } from '../drafts.js';
import { BLANK, creation, faultOf } from '../fields.js';
import { FormFault, Options, readable, TextField, useFirstFault } from '../form.js';
import { useAction } from '../load.js';
import { href } from '../router.js';
import { bare } from '../format.js';
import { Copy, Field, Icon, IconButton, ShortLink, Submit, Theirs } from '../ui.js';

/** @param {{link: any, onClose: () => void}} props */
const Made = ({ link, onClose }) => html`
  <section class="made" aria-label="The new link">
    <img class="qr" src=${api.qr(link.short_id)} alt=${`QR code of ${link.short_url}`} width="112" height="112" />
    <div>
      <p class="soft small">Your link is ready</p>
      <p><a href=${href(['links', link.short_id])}><${ShortLink} link=${link} big /></a></p>
      <p class="target"><${Theirs}>${bare(link.redirect_url)}<//></p>
      <div class="buttons">
        <${Copy} kind="primary" text=${link.short_url} label="Copy link" />
        <a class="button" href=${api.qr(link.short_id)} download=${`${link.short_id}.svg`}><${Icon} name="save" /><span>SVG</span></a>
        <a class="button" href=${api.qr(link.short_id, { format: 'png', scale: 10 })} download=${`${link.short_id}.png`}><${Icon} name="save" /><span>PNG</span></a>
      </div>
    </div>
    <${IconButton} icon="close" label="Close" onClick=${onClose} />
  </section>
`;

const all = () => true;
const SHOWN = (name) => name !== 'archived';

/** @param {{onMade: () => void}} props */
export function Composer({ onMade }) {
  const [kept, setForm, forget] = useDraft('new', BLANK);
  const form = { ...BLANK, ...kept };
  const [made, setMade] = useState(/** @type {any} */ (undefined));
  const [round, setRound] = useState(0);
  const box = useRef(/** @type {any} */ (null));
  // Only at the beginning: an option that is emptied must not close on the person.
  const hasOptions = useRef(Object.keys(BLANK).some((name) => name !== 'redirect_url' && form[name] !== BLANK[name]));
  const action = useAction(async () => {
    readable(box.current);
    const body = creation(form);
    const { key } = once.of('new', body, () => ({ key: freshKey() }));
    const link = await once.during('new', () => api.create(body, key));
    setMade(link);
    forget(kept);
    hasOptions.current = false;
    setRound((n) => n + 1);
    onMade();
  });
  const options = useRef(/** @type {any} */ (null));
  const hasFaultInOptions = Object.keys(BLANK).some((name) => name !== 'redirect_url' && faultOf(action.error, name, form));
  useLayoutEffect(() => {
    if (hasFaultInOptions) options.current.open = true;
  }, [hasFaultInOptions, action.error]);
  useFirstFault(action.error, box);
  const set = (name, value) => setForm((last) => ({ ...last, [name]: value }));
  const props = { form, set, error: action.error, has: SHOWN };
  const fault = faultOf(action.error, 'redirect_url', form);
  const submit = async (event) => {
    event.preventDefault();
    if (!(await action.run())) setMade(undefined);
  };
  return html`
    <section class="panel composer">
      <form onSubmit=${submit} ref=${box} novalidate>
        <${Field} label="Shorten a link" error=${fault}>
          ${(wiring) => html`
            <div class="compose">
              <input ...${wiring} type="url" inputmode="url" placeholder="https://example.com/a/long/address" autocomplete="off" value=${form.redirect_url} onInput=${(event) => set('redirect_url', event.target.value)} />
              <${Submit} kind="primary tall" busy=${action.busy} error=${action.error} busyText="Shortening…">Shorten<//>
            </div>
          `}
        <//>
        <details class="options" ref=${options} key=${`o${round}`} open=${hasOptions.current}>
          <summary><${Icon} name="down" />Own name, title, expiry, webhooks and more</summary>
          <div class="two">
            <${TextField} ...${props} name="slug" label="Own name" optional class="mono" spellcheck=${false} autocapitalize="off" placeholder="autumn-sale" hint="Letters, digits, - and _; case matters. Empty: 7 random characters." />
          </div>
          <${Options} ...${props} />
        </details>
        <${FormFault} error=${action.error} has=${all} />
      </form>
      <div class="composer-foot"><a href=${href(['bulk'])}>Many links at once</a></div>
      <div role="status">${made && html`<${Made} key=${made.short_id} link=${made} onClose=${() => setMade(undefined)} />`}</div>
    </section>
  `;
}

