// What calls of the API have answered so far, for screens. Effects run with the rendering that asks for them: a frame later, a person
// would see the answer to the question before for that long.
import { useLayoutEffect, useRef, useState } from './html.js';
import { session } from './session.js';

/** A reason to ask again: the time that the service named has come, or the browser is online again. @param {any} error @param {() => void} again */
export function useSecondChance(error, again) {
  useLayoutEffect(() => {
    if (!error) return undefined;
    const timer = error.retryAt ? setTimeout(again, Math.max(500, error.retryAt - Date.now() + 250)) : 0;
    if (error.isOffline) addEventListener('online', again);
    const unwatch = session.watch(() => error.status === 401 && !session.ended && session.key && again());
    return () => {
      unwatch();
      clearTimeout(timer);
      removeEventListener('online', again);
    };
  }, [error]);
}

/** One answer. An answer that was overtaken is dropped; the last one stays while the next is loaded.
 * @template T @param {(signal: AbortSignal) => Promise<T>} call @param {unknown[]} inputs
 * @returns {{data?: T, error?: any, loading: boolean, reload: () => void, change: (edit: (data: T) => T) => void}} */
export function useLoad(call, inputs) {
  const [state, setState] = useState(/** @type {{data?: T, error?: any, loading: boolean}} */ ({ loading: true }));
  const [round, setRound] = useState(0);
  const reload = () => setRound((n) => n + 1);
  const asked = useRef('');
  useLayoutEffect(() => {
    const abort = new AbortController();
    // The fault of an answer to something else is none of this one's.
    const isSame = asked.current === JSON.stringify(inputs);
    asked.current = JSON.stringify(inputs);
    setState(({ data, error }) => ({ data, error: isSame ? error : undefined, loading: true }));
    call(abort.signal).then(
      (data) => abort.signal.aborted || setState({ data, loading: false }),
      (error) => abort.signal.aborted || setState((last) => ({ ...last, error, loading: false })),
    );
    return () => abort.abort();
  }, [...inputs, round]);
  useSecondChance(state.error, reload);
  return { ...state, reload, change: (edit) => setState((last) => (last.data === undefined ? last : { ...last, data: edit(last.data) })) };
}

/** How many pages without any row are read before a person is asked. */
const EMPTY_PAGES = 3;

/** A list that is read page by page. A page may be empty although the list goes on.
 * @template T @param {(cursor: string | undefined, signal: AbortSignal) => Promise<{rows: T[], next: string | null}>} call @param {unknown[]} inputs
 * @returns {{rows?: T[], next: string | null, error?: any, loading: boolean, reload: () => void, more: () => void, change: (edit: (rows: T[]) => T[]) => void}} */
export function useList(call, inputs) {
  const [state, setState] = useState(/** @type {{rows?: T[], next: string | null, error?: any, loading: boolean}} */ ({ next: null, loading: true }));
  const [round, setRound] = useState(0);
  const abort = useRef(new AbortController());
  const reload = () => setRound((n) => n + 1);
  const isLoading = useRef(false);
  /** @param {string | undefined} cursor */
  const read = async (cursor) => {
    abort.current.abort();
    const { signal } = (abort.current = new AbortController());
    isLoading.current = true;
    setState((last) => ({ ...last, loading: true }));
    try {
      let page = await call(cursor, signal);
      for (let tries = 1; tries < EMPTY_PAGES && !page.rows.length && page.next; tries += 1) page = await call(page.next, signal);
      // To the rows as they are now: some may have been changed while this page was read.
      if (!signal.aborted) setState((last) => ({ rows: [...(cursor === undefined ? [] : (last.rows ?? [])), ...page.rows], next: page.next, loading: false }));
    } catch (error) {
      // Rows of other filters must not stand below the fault of these.
      if (!signal.aborted) setState((last) => (cursor === undefined ? { next: null, error, loading: false } : { ...last, error, loading: false }));
    } finally {
      if (!signal.aborted) isLoading.current = false;
    }
  };
  useLayoutEffect(() => {
    read(undefined);
    return () => abort.current.abort();
  }, [...inputs, round]);
  // The cursor belongs to these inputs: the button that is shown while others are loaded does nothing.
  const more = () => {
    if (state.next && !isLoading.current) read(state.next);
  };
  useSecondChance(state.error, state.rows ? more : reload);
  return {
    ...state,
    reload,
    more,
    change: (edit) => setState((last) => (last.rows ? { ...last, rows: edit(last.rows) } : last)),
  };
}

/** Something that a person does: once at a time, and with what was refused.
 * @template {unknown[]} A @param {(...args: A) => Promise<unknown>} call */
export function useAction(call) {
  const [state, setState] = useState(/** @type {{busy: boolean, error?: any}} */ ({ busy: false }));
  const busy = useRef(false);
  const alive = useRef(true);
  useLayoutEffect(() => {
    alive.current = true;
    return () => {
      alive.current = false;
    };
  }, []);
  /** @param {A} args @returns {Promise<boolean>} */
  const run = async (...args) => {
    if (busy.current) return false;
    busy.current = true;
    setState((last) => ({ ...last, busy: true }));
    let error;
    try {
      await call(...args);
    } catch (cause) {
      error = cause;
    }
    busy.current = false;
    if (alive.current) setState({ busy: false, error });
    return error === undefined;
  };
  return { ...state, run, clear: () => setState({ busy: busy.current }) };
}

/** Whole seconds until a time; 0 once it has passed. @param {number | undefined} at */
export function useCountdown(at) {
  const left = () => (at === undefined ? 0 : Math.max(0, Math.ceil((at - Date.now()) / 1000)));
  const [seconds, setSeconds] = useState(left);
  useLayoutEffect(() => {
    setSeconds(left());
    if (at === undefined || left() === 0) return undefined;
    const timer = setInterval(() => {
      setSeconds(left());
      if (left() === 0) clearInterval(timer);
    }, 500);
    return () => clearInterval(timer);
  }, [at]);
  return seconds;
}
