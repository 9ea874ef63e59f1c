import { html, render, useLayoutEffect, useRef, useState } from './html.js';
import { api } from './api.js';
import { drafts } from './drafts.js';
import { session } from './session.js';
import { href, useRoute } from './router.js';
import { useLoad } from './load.js';
import { Action, Fault, Icon, Menu, Pill, Skeleton, Tabs, Theirs } from './ui.js';
import { SignIn, SignInAgain } from './screens/sign-in.js';
import { Links } from './screens/links.js';
import { Link } from './screens/link.js';
import { AllClicks } from './screens/all-clicks.js';
import { Keys, SCOPES } from './screens/keys.js';
import { Many } from './screens/many.js';

const THEMES = [['', 'System'], ['light', 'Light'], ['dark', 'Dark']];

function ThemeChoice() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? '');
  const choose = (next) => {
    setTheme(next);
    if (next) document.documentElement.dataset.theme = next;
    else delete document.documentElement.dataset.theme;
    try {
      if (next) localStorage.setItem('signpost.theme', next);
      else localStorage.removeItem('signpost.theme');
    } catch {
      // For this page alone, then.
    }
  };
  return html`<${Tabs} label="Theme" options=${THEMES} value=${theme} onChange=${choose} />`;
}

const signOut = () => {
  drafts.clear();
  session.close();
};

/** @param {{self: import('./session.js').KeyRecord}} props */
const Account = ({ self }) => html`
  <${Menu} wide label=${`Signed in with the key ${self.name}`} face=${html`<${Icon} name="key" /><span class="who"><${Theirs}>${self.name}<//></span><${Icon} name="down" />`}>
    <div class="account">
      <p><strong><${Theirs}>${self.name}<//></strong> <${Pill}>${self.tier}<//></p>
      <p class="soft small"><code>${self.prefix}…</code> · ${self.scopes.length} of ${SCOPES.length} scopes</p>
    </div>
    <div class="account"><${ThemeChoice} /></div>
    <${Action} icon="leave" onClick=${signOut}>Sign out<//>
  <//>
`;

/** @param {{path: string[], query: URLSearchParams}} route */
function screenOf({ path, query }) {
  const [first = 'links', id, tab] = path;
  if (first === 'links' && id && (tab === undefined || tab === 'webhooks')) return ['links', html`<${Link} key=${id} id=${id} tab=${tab} query=${query} />`];
  if (first === 'links' && !id) return ['links', html`<${Links} query=${query} />`];
  if (first === 'clicks') return ['clicks', html`<${AllClicks} query=${query} />`];
  if (first === 'bulk') return ['bulk', html`<${Many} />`];
  if (first === 'keys') return ['keys', html`<${Keys} />`];
  return ['', html`<h1>There is no such page</h1><p><a href=${href(['links'])}>To the links</a></p>`];
}

function Offline() {
  const [online, setOnline] = useState(navigator.onLine);
  useLayoutEffect(() => {
    const changed = () => setOnline(navigator.onLine);
    addEventListener('online', changed);
    addEventListener('offline', changed);
    return () => ['online', 'offline'].forEach((type) => removeEventListener(type, changed));
  }, []);
  return html`<div role="status">${!online && html`<p class="offline">This device is offline. What you typed is kept.</p>`}</div>`;
}

/** The record of the key: known from the sign-in, and read again where it is old. */
function useSelf() {
  const [, setRound] = useState(0);
  useLayoutEffect(() => session.watch(() => setRound((n) => n + 1)), []);
  const { error, reload } = useLoad(async () => {
    if (!session.self) session.update(await api.self());
  }, []);
  return { self: session.self, error, reload };
}

function Console() {
  const route = useRoute();
  const { self, error, reload } = useSelf();
  const main = useRef(/** @type {any} */ (null));
  const place = route.path.join('/');
  const first = useRef(true);
  useLayoutEffect(() => {
    // A new screen begins at its top, for eyes and for screen readers.
    if (!first.current) main.current?.focus();
    first.current = false;
    scrollTo(0, 0);
  }, [place]);
  if (!self) return html`<main class="page">${error ? html`<${Fault} error=${error} onRetry=${reload} />` : html`<${Skeleton} />`}</main>`;
  const [section, content] = screenOf(route);
  const tab = (name, text) => html`<a href=${href([name])} aria-current=${section === name ? 'page' : undefined}>${text}</a>`;
  return html`
    <button type="button" class="skip" onClick=${() => main.current.focus()}>Skip to content</button>
    <header class="top">
      <div class="bar">
        <a class="brand" href=${href(['links'])}><${Icon} name="sign" />Signpost</a>
        <nav aria-label="Main">${tab('links', 'Links')}${tab('clicks', 'Clicks')}${tab('bulk', 'Bulk')}${tab('keys', 'Keys & usage')}<a href="docs" target="_blank" rel="noopener noreferrer">API</a></nav>
        <${Account} self=${self} />
      </div>
      <${Offline} />
    </header>
    <main class="page" ref=${main} tabindex="-1">${content}</main>
  `;
}

function App() {
  const [, setRound] = useState(0);
  useLayoutEffect(() => session.watch(() => setRound((n) => n + 1)), []);
  if (!session.key) return html`<${SignIn} />`;
  return html`<${Console} key=${session.self?.key_id ?? 'unknown'} />${session.ended && html`<${SignInAgain} />`}`;
}

render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById('app')));
