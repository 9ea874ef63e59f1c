// Hits as they come: server-sent events over `fetch`, because `EventSource` sends no headers.
import { api } from './api.js';

/** @typedef {{hit_id: string, hit_at: string, bot: string | null, [field: string]: unknown}} Hit */

/** Calls `onEvent` for each event until the stream ends; `data` is empty where only the place in the stream is told.
 * @param {ReadableStream<Uint8Array>} body @param {(event: string, data: string, id: string) => void} onEvent */
export async function readEvents(body, onEvent) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  let id = '';
  let [event, data] = ['', ''];
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + decoder.decode(part.value, { stream: true })).split(/\r?\n/);
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const [, name, value] = /^([^:]*):? ?(.*)$/.exec(line) ?? [];
      if (line === '') {
        onEvent(event || 'message', data, id);
        [event, data] = ['', ''];
      } else if (name === 'event') event = value;
      else if (name === 'data') data += (data && '\n') + value;
      else if (name === 'id') id = value;
    }
  }
}

const [RETRY_MS, LONGEST_MS, STEADY_MS] = [3000, 60_000, 10_000];

/** Follows a link's hits while the page is seen, until `signal` aborts. `onState` is told "live", "waiting" or, at the end, "unavailable".
 * @param {string} id @param {AbortSignal} signal @param {(hits: Hit[], skipped: number) => void} onHits @param {(state: string) => void} onState */
export async function follow(id, signal, onHits, onState) {
  let last = '';
  let wait = RETRY_MS;
  while (!signal.aborted) {
    await whenSeen(signal);
    const pause = new AbortController();
    const hide = () => document.hidden && pause.abort();
    document.addEventListener('visibilitychange', hide);
    const began = Date.now();
    try {
      const { body } = await api.stream(id, AbortSignal.any([signal, pause.signal]), last);
      if (!body) throw new TypeError('no body');
      onState('live');
      await readEvents(body, (event, data, eventId) => {
        last = eventId || last;
        if (!data) return;
        const value = JSON.parse(data);
        if (event === 'hit') onHits([value], 0);
        // How many is not always known.
        if (event === 'skipped') onHits([], value.count ?? 0);
      });
    } catch (error) {
      const refused = /** @type {any} */ (error);
      if (refused.isUnavailable || [401, 403, 404].includes(refused.status)) return onState('unavailable');
      // That place in the stream is of no use.
      if (refused.status === 422) last = '';
      if (refused.retryAt) wait = Math.max(wait, refused.retryAt - Date.now());
    } finally {
      document.removeEventListener('visibilitychange', hide);
    }
    if (signal.aborted) return;
    onState('waiting');
    if (Date.now() - began > STEADY_MS) wait = RETRY_MS;
    await pausedFor(wait, signal);
    // Each beginning counts in a rate limit.
    wait = Math.min(2 * wait, LONGEST_MS);
  }
}

/** @param {AbortSignal} signal @returns {Promise<void>} */
const whenSeen = (signal) =>
  new Promise((done) => {
    if (!document.hidden || signal.aborted) return done();
    const seen = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener('visibilitychange', seen);
      done();
    };
    document.addEventListener('visibilitychange', seen);
    signal.addEventListener('abort', seen, { once: true });
  });

/** @param {number} ms @param {AbortSignal} signal @returns {Promise<void>} */
const pausedFor = (ms, signal) =>
  new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', () => (clearTimeout(timer), done()), { once: true });
  });
