// The API key: in memory, and in this tab's sessionStorage so that a reload does not ask for it again. Nowhere else.
/** @typedef {{key_id: string, name: string, prefix: string, tier: string, scopes: string[], created_at: string, expires_at: string | null,
 *   last_used_at: string | null, rotated_at: string | null, created_by: string | null}} KeyRecord */

const KEY_SLOT = 'signpost.key';
const SELF_SLOT = 'signpost.self';
/** @type {Set<() => void>} */
const watchers = new Set();

/** @param {string} slot */
export function readSlot(slot) {
  try {
    return sessionStorage.getItem(slot);
  } catch {
    return null;
  }
}

/** @param {string} slot @param {string | null} value */
export function writeSlot(slot, value) {
  try {
    if (value === null) sessionStorage.removeItem(slot);
    else sessionStorage.setItem(slot, value);
  } catch {
    // The browser stores nothing, or no more: memory alone, then.
  }
}

/** @returns {KeyRecord | null} */
function storedSelf() {
  try {
    return JSON.parse(readSlot(SELF_SLOT) ?? 'null');
  } catch {
    return null;
  }
}

let key = readSlot(KEY_SLOT);
// Without a key it is that of the last session, whose drafts are still here.
let keyRecord = storedSelf();
let ended = false;

function changed() {
  for (const watcher of [...watchers]) watcher();
}

export const session = {
  get key() {
    return key;
  },
  /** The record of the key, as last seen. */
  get self() {
    return keyRecord;
  },
  /** Whether the key was accepted before, and is not any more. */
  get ended() {
    return ended;
  },
  /** @param {string} secret @param {KeyRecord} record */
  open(secret, record) {
    [key, keyRecord, ended] = [secret, record, false];
    writeSlot(KEY_SLOT, secret);
    writeSlot(SELF_SLOT, JSON.stringify(record));
    changed();
  },
  /** @param {KeyRecord} record */
  update(record) {
    if (!key) return;
    keyRecord = record;
    writeSlot(SELF_SLOT, JSON.stringify(record));
    changed();
  },
  /** The service refused this key. @param {string | null} refused */
  end(refused) {
    if (refused === null || refused !== key || ended) return;
    ended = true;
    writeSlot(KEY_SLOT, null);
    changed();
  },
  close() {
    [key, keyRecord, ended] = [null, null, false];
    writeSlot(KEY_SLOT, null);
    writeSlot(SELF_SLOT, null);
    changed();
  },
  /** Whether it is still the session of this key. @param {string | undefined} owner */
  isStill: (owner) => key !== null && keyRecord?.key_id === owner,
  /** @param {() => void} watcher */
  watch(watcher) {
    watchers.add(watcher);
    return () => {
      watchers.delete(watcher);
    };
  },
  /** @param {string} scope */
  may: (scope) => keyRecord?.scopes.includes(scope) ?? false,
  /** Only the root key has no creator and this name; the server decides all the same. */
  get isRoot() {
    return keyRecord?.name === 'root' && keyRecord.created_by === null;
  },
};
