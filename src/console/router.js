// Addresses are in the fragment: the server has one page, and no proxy logs a link's id.
import { useLayoutEffect, useState } from './html.js';

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function currentRoute() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  return { path: path.split('/').filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

/** @param {string[]} path @param {Record<string, unknown>} [query] */
export function href(path, query = {}) {
  const set = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '').map(([name, value]) => [name, String(value)]);
  const tail = new URLSearchParams(set).toString();
  return `#/${path.map(encodeURIComponent).join('/')}${tail && `?${tail}`}`;
}

/** @param {string[]} path @param {Record<string, unknown>} [query] */
export function go(path, query, { replace = false } = {}) {
  const to = href(path, query);
  if (!replace) {
    location.hash = to;
    return;
  }
  history.replaceState(null, '', to);
  dispatchEvent(new HashChangeEvent('hashchange'));
}

/** Changes the query of the address as it is now. @param {Record<string, unknown>} changes */
export function refine(changes) {
  const { path, query } = currentRoute();
  go(path, { ...Object.fromEntries(query), ...changes }, { replace: true });
}

export function useRoute() {
  const [route, setRoute] = useState(currentRoute);
  useLayoutEffect(() => {
    const changed = () => setRoute(currentRoute());
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return route;
}
