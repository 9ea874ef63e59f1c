// Numbers, times and addresses as people read them.
const NUMBER = new Intl.NumberFormat('en');
const SHORT = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const PERCENT = new Intl.NumberFormat('en', { style: 'percent', maximumFractionDigits: 0 });
const RELATIVE = new Intl.RelativeTimeFormat('en', { numeric: 'auto' });
const REGION = new Intl.DisplayNames(['en'], { type: 'region', fallback: 'code' });
const LANGUAGE = new Intl.DisplayNames(['en'], { type: 'language', fallback: 'code' });
/** @param {Intl.DateTimeFormatOptions} options @param {string} [timeZone] */
const date = (options, timeZone) => new Intl.DateTimeFormat('en-GB', { ...options, timeZone });
const DAY = date({ day: 'numeric', month: 'short' }, 'UTC');
const FULL_DAY = date({ weekday: 'short', day: 'numeric', month: 'short', year: 'numeric' }, 'UTC');
const HOUR = date({ hour: '2-digit', minute: '2-digit' }, 'UTC');
const SHORT_MONTH = date({ month: 'short', year: '2-digit' }, 'UTC');
const MONTH = date({ month: 'long', year: 'numeric' }, 'UTC');
const MOMENT = date({ day: 'numeric', month: 'short', year: 'numeric', hour: '2-digit', minute: '2-digit' });
const CLOCK = date({ day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', second: '2-digit' });

export const DAY_MS = 86_400_000;
export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** @param {number} value */
export const number = (value) => NUMBER.format(value);
/** @param {number} value */
export const short = (value) => SHORT.format(value);
/** @param {number} part */
export const percent = (part) => (part > 0 && part < 0.01 ? '<1%' : PERCENT.format(part));
/** @param {string | number} at */
export const moment = (at) => MOMENT.format(new Date(at));
/** @param {string | number} at */
export const clock = (at) => CLOCK.format(new Date(at));
/** @param {string | number} at */
export const fullDay = (at) => FULL_DAY.format(new Date(at));
/** @param {string} text `YYYY-MM` */
export const month = (text) => MONTH.format(new Date(`${text}-01`));
/** The first day of the next month, UTC. @param {string} text `YYYY-MM` */
export function monthAfter(text) {
  const [year, number] = text.split('-').map(Number);
  return DAY.format(new Date(Date.UTC(year, number, 1)));
}
/** @param {number} count @param {string} one @param {string} [many] */
export const counted = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;
/** A day, UTC, as the API takes it. @param {number} at */
export const isoDay = (at) => new Date(at).toISOString().slice(0, 10);

/** The start of an interval: below its bar, and in full. @param {string} start @param {string} unit */
export function interval(start, unit) {
  const at = new Date(start);
  if (unit === 'hour') return { short: HOUR.format(at), full: `${FULL_DAY.format(at)}, ${HOUR.format(at)}` };
  if (unit === 'month') return { short: SHORT_MONTH.format(at), full: MONTH.format(at) };
  return { short: DAY.format(at), full: `${unit === 'week' ? 'Week of ' : ''}${FULL_DAY.format(at)}` };
}

/** @type {[Intl.RelativeTimeFormatUnit, number][]} */
const UNITS = [['year', 31_536_000], ['month', 2_592_000], ['day', 86_400], ['hour', 3600], ['minute', 60]];

/** @param {string} text @param {number} [now] */
export function ago(text, now = Date.now()) {
  const seconds = (new Date(text).getTime() - now) / 1000;
  const [unit, size] = UNITS.find(([, length]) => Math.abs(seconds) >= length) ?? ['second', 1];
  return Math.abs(seconds) < 10 ? 'just now' : RELATIVE.format(Math.round(seconds / /** @type {number} */ (size)), /** @type {Intl.RelativeTimeFormatUnit} */ (unit));
}

/** @type {Record<string, string>} */
const NAMES = {
  chrome: 'Chrome', safari: 'Safari', firefox: 'Firefox', edge: 'Edge', opera: 'Opera', samsung: 'Samsung Internet', ios: 'iOS', android: 'Android',
  windows: 'Windows', macos: 'macOS', linux: 'Linux', chromeos: 'ChromeOS',
};

/** A label of a breakdown. @param {string} dimension @param {string} label */
export function labelOf(dimension, label) {
  try {
    if (dimension === 'country' && /^[A-Z]{2}$/.test(label)) return REGION.of(label) ?? label;
    if (dimension === 'language') return LANGUAGE.of(label) ?? label;
  } catch {
    return label;
  }
  return (dimension === 'browser' || dimension === 'os') && Object.hasOwn(NAMES, label) ? NAMES[label] : label;
}

/** A target is somebody's text: only http and https become links, whatever the server let in. @param {string} text */
export function safeHref(text) {
  try {
    const { protocol } = new URL(text);
    return protocol === 'http:' || protocol === 'https:' ? text : undefined;
  } catch {
    return undefined;
  }
}

/** Without what all addresses have in common. @param {string} text */
export const bare = (text) => text.replace(/^https?:\/\/(www\.)?/i, '').replace(/\/$/, '');

/** A time as `<input type="datetime-local">` has it, in the zone of the browser. @param {string | null} text */
export function localTime(text) {
  if (!text) return '';
  const at = new Date(text);
  const local = new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString();
  return local.slice(0, local.endsWith(':00.000Z') ? 16 : local.endsWith('.000Z') ? 19 : 23);
}
