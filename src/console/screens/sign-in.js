import { html, useEffect, useLayoutEffect, useRef, useState } from '../html.js';
import { api } from '../api.js';
import { drafts } from '../drafts.js';
import { session } from '../session.js';
import { Field, Icon, Submit } from '../ui.js';

/** @param {any} error */
function refusalOf(error) {
  if (error.status === 401) return 'this key is not accepted: it is unknown, expired or revoked';
  if (error.slug === 'rate-limited') return 'too many attempts from this address';
  return error.detail ?? 'the service can’t be reached';
}

/** Asks for a key. `previous` is the `key_id` of the session that ended. @param {{previous?: string}} props */
function KeyForm({ previous }) {
  const [secret, setSecret] = useState('');
  const [shown, setShown] = useState(false);
  const [busy, setBusy] = useState(false);
  const [fault, setFault] = useState(/** @type {any} */ (undefined));
  const field = useRef(/** @type {any} */ (null));
  useLayoutEffect(() => {
    field.current.focus();
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    const typed = secret.trim();
    if (!/^[\x21-\x7e]+$/.test(typed)) {
      setFault({ detail: typed ? 'a key has only ASCII letters, digits and signs' : 'paste a key first' });
      field.current.focus();
      return;
    }
    setBusy(true);
    try {
      const self = await api.self(typed);
      // What another key's holder typed is not for this one.
      if (self.key_id !== previous) drafts.clear();
      session.open(typed, self);
    } catch (error) {
      setFault(error);
      setBusy(false);
      field.current?.focus();
    }
  };
  return html`
    <form onSubmit=${submit} novalidate>
      <${Field} label="API key" error=${fault && refusalOf(fault)}>
        ${(wiring) => html`
          <div class="with-button">
            <input ...${wiring} ref=${field} class="mono" type=${shown ? 'text' : 'password'} name="key" autocomplete="off" autocapitalize="off" spellcheck=${false}
              placeholder="sp_…" value=${secret} onInput=${(event) => setSecret(event.target.value)} required />
            <button type="button" class="icon-button" aria-label="Show the key" aria-pressed=${String(shown)} onClick=${() => setShown(!shown)}><${Icon} name="eye" /></button>
          </div>
        `}
      <//>
      <${Submit} kind="primary tall" busy=${busy} error=${fault} busyText="Signing in…">Sign in<//>
    </form>
  `;
}

export function SignIn() {
  useEffect(() => {
    document.title = 'Sign in · Signpost';
  }, []);
  return html`
    <main class="door">
      <div class="door-card">
        <p class="door-mark"><${Icon} name="sign" /></p>
        <h1>Sign in to Signpost</h1>
        <p class="soft">with an API key. Its scopes say what you can do here.</p>
        <${KeyForm} previous=${session.self?.key_id} />
        <p class="soft small door-note">The key stays in this tab until you close it or sign out. It is sent only to this service.</p>
      </div>
      <p class="soft small">No key yet? The first start of the service prints the root key. The <a href="docs" target="_blank" rel="noopener noreferrer">API reference</a> says how to create others.</p>
    </main>
  `;
}

/** Above everything else, which stays as it is until the person is back. */
export function SignInAgain() {
  const box = useRef(/** @type {any} */ (null));
  useLayoutEffect(() => {
    box.current.showModal();
    box.current.querySelector('input').focus();
  }, []);
  return html`
    <dialog ref=${box} class="small again" aria-labelledby="again-title" onCancel=${(event) => event.preventDefault()}
      onClose=${() => box.current?.showModal()}>
      <div class="dialog-body">
        <header><h2 id="again-title">Your session has ended</h2></header>
        <p>The service does not accept this key any more: it has expired, or was revoked or rotated. What you typed is kept; sign in to go on.</p>
        <div class="door-form"><${KeyForm} previous=${session.self?.key_id} /></div>
        <div class="buttons end"><button type="button" class="plain" onClick=${() => { drafts.clear(); session.close(); }}>Sign out instead</button></div>
      </div>
    </dialog>
  `;
}
