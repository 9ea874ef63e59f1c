// What was typed and is not sent yet. It outlives a change of screens and a reload of this tab, and ends with the session.
import { useRef, useState } from './html.js';
import { readSlot, writeSlot } from './session.js';

const SLOT = 'signpost.drafts';
const PAUSE_MS = 200;

/** @returns {Map<string, any>} */
function stored() {
  try {
    return new Map(Object.entries(JSON.parse(readSlot(SLOT) ?? '{}')));
  } catch {
    return new Map();
  }
}

const kept = stored();
let timer = 0;

function write() {
  clearTimeout(timer);
  timer = 0;
  writeSlot(SLOT, kept.size ? JSON.stringify(Object.fromEntries(kept)) : null);
}

addEventListener('pagehide', write);

/** @param {string} name @param {any} value */
function keep(name, value) {
  if (value === undefined) kept.delete(name);
  else kept.set(name, value);
  timer ||= setTimeout(write, PAUSE_MS);
}

export const drafts = {
  /** @param {string} name */
  get: (name) => kept.get(name),
  keep,
  clear() {
    kept.clear();
    write();
  },
};

/** @typedef {{typed: string, key: string, time: string}} Once */

/** The `Idempotency-Key` of what is typed, and a time that belongs to it. The same request again after a lost answer, also after a change of
 * screens or a reload, has the same: nothing is made twice. */
export const once = {
  /** @param {string} name @param {string} typed @param {() => {key: string, time?: string}} fresh @returns {Once} */
  of(name, typed, fresh) {
    const known = kept.get(`${name}/once`);
    if (known?.typed === typed) return known;
    const next = { time: '', ...fresh(), typed };
    keep(`${name}/once`, next);
    return next;
  },
  /** @param {string} name */
  end: (name) => keep(`${name}/once`, undefined),
  /** Makes the request. What was refused for good has made nothing: the next try is another request.
   * @template T @param {string} name @param {() => Promise<T>} request */
  async during(name, request) {
    try {
      const answer = await request();
      once.end(name);
      return answer;
    } catch (error) {
      const { status } = /** @type {{status?: number}} */ (error);
      if (status !== undefined && status >= 400 && status < 500 && status !== 409) once.end(name);
      throw error;
    }
  },
};

/** A value that is kept under a name once it was changed. The third part forgets it, if it is still the one that is given.
 * @template T @param {string} name @param {T} initial @returns {[T, (value: T | ((last: T) => T)) => void, (sent: T) => void]} */
export function useDraft(name, initial) {
  const [value, setValue] = useState(/** @type {T} */ (kept.has(name) ? kept.get(name) : initial));
  const latest = useRef(value);
  return [
    value,
    (next) => {
      latest.current = typeof next === 'function' ? /** @type {(last: T) => T} */ (next)(latest.current) : next;
      keep(name, latest.current);
      setValue(latest.current);
    },
    (sent) => {
      // What was typed while the request was under way is not sent yet.
      if (latest.current !== sent) return;
      latest.current = initial;
      keep(name, undefined);
      setValue(initial);
    },
  ];
}
