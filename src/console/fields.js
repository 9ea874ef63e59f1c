// The fields of a link between the API's JSON and a form's texts.
import { localTime } from './format.js';
import { memberText, mergePatch, minified, pretty } from './json.js';

/** @typedef {import('./api.js').FieldFault} FieldFault */
/** A form: the text, or the choice, of each field. @typedef {Record<string, any>} Form */
/** `read` makes the form's value of a record, `write` the JSON text of the form's value, where "null" is the default.
 * @typedef {{name: string, label: string, blank: any, read: (record: any, text: string) => any, write: (value: any) => string, fixed?: boolean}} Spec */

export const lines = (text) => text.split('\n').map((line) => line.trim()).filter(Boolean);
const parts = (text) => text.split(',').map((part) => part.trim()).filter(Boolean);
const list = (/** @type {string[]} */ items) => (items.length ? JSON.stringify(items) : 'null');

/** @param {string} name @param {string} label @returns {Spec} */
const text = (name, label) => ({ name, label, blank: '', read: (record) => record[name] ?? '', write: (value) => (value.trim() ? JSON.stringify(value.trim()) : 'null') });

/** @param {string} name @param {string} label @returns {Spec} */
const time = (name, label) => ({
  name, label, blank: '',
  read: (record) => localTime(record[name]),
  write(value) {
    if (!value) return 'null';
    const at = new Date(value);
    if (Number.isNaN(at.getTime())) throw new RangeError('must be a date and a time');
    return JSON.stringify(at.toISOString());
  },
});

/** @param {string} name @param {string} label @param {boolean} usual @returns {Spec} */
const flag = (name, label, usual) => ({ name, label, blank: usual, read: (record) => record[name] ?? usual, write: (value) => (value === usual ? 'null' : String(value)) });

/** @param {string} name @param {string} label @param {string} blank @returns {Spec} */
const count = (name, label, blank) => ({
  name, label, blank,
  read: (record) => (record[name] === null || record[name] === undefined ? blank : String(record[name])),
  write(value) {
    if (value === '' || value === blank) return 'null';
    if (!/^\d{1,16}$/.test(value)) throw new RangeError('must be a whole number');
    return String(BigInt(value));
  },
});

/** @param {string} value */
function objectText(value) {
  let parsed;
  try {
    parsed = JSON.parse(value);
  } catch {
    throw new RangeError('must be a JSON object: this is not valid JSON');
  }
  if (parsed === null || typeof parsed !== 'object' || Array.isArray(parsed)) throw new RangeError('must be a JSON object');
  return minified(value);
}

/** @type {Spec[]} */
export const SPECS = [
  text('redirect_url', 'Leads to'),
  { ...text('slug', 'Own name'), fixed: true },
  text('title', 'Title'),
  { name: 'tags', label: 'Tags', blank: '', read: (record) => (record.tags ?? []).join(', '), write: (value) => list(parts(value)) },
  text('notes', 'Notes'),
  time('not_before', 'Starts'),
  time('expires_at', 'Ends'),
  text('fallback_url', 'Afterwards leads to'),
  count('redirect_status', 'Status', '302'),
  count('cache_seconds', 'Browsers may keep it for', '0'),
  { name: 'webhooks', label: 'Webhooks', blank: '', read: (record) => (record.webhooks ?? []).join('\n'), write: (value) => list(lines(value)) },
  {
    name: 'data', label: 'Data', blank: '',
    read(_, all) {
      const data = memberText(all, 'data') ?? '{}';
      return data === '{}' ? '' : pretty(data);
    },
    write: (value) => (value.trim() ? objectText(value) : 'null'),
  },
  flag('skip_bots', 'No webhooks for bots', false),
  flag('preview', 'Preview page', true),
  flag('archived', 'Archived', false),
  { ...flag('tracked', 'Counts clicks', true), fixed: true },
];

/** @type {Form} */
export const BLANK = Object.fromEntries(SPECS.map(({ name, blank }) => [name, blank]));

/** @param {import('./api.js').ReadLink} link @returns {Form} */
export const formOf = ({ record, text: all }) => Object.fromEntries(SPECS.map(({ name, read }) => [name, read(record, all)]));

/** Faults that were found before anything was sent. */
export class FormFaults extends Error {
  /** @param {FieldFault[]} errors */
  constructor(errors) {
    super('The form has faults.');
    this.errors = errors;
  }
}

/** @param {(spec: Spec) => string | undefined} write the JSON text of a field, or nothing */
function bodyOf(write) {
  /** @type {FieldFault[]} */
  const faults = [];
  /** @type {string[]} */
  const found = [];
  for (const spec of SPECS) {
    try {
      const json = write(spec);
      if (json !== undefined) found.push(`${JSON.stringify(spec.name)}:${json}`);
    } catch (error) {
      faults.push({ pointer: `/${spec.name}`, detail: /** @type {Error} */ (error).message });
    }
  }
  if (faults.length) throw new FormFaults(faults);
  return `{${found.join(',')}}`;
}

/** The body of a creation: what differs from the defaults. @param {Form} form */
export const creation = (form) =>
  bodyOf(({ name, write }) => {
    const json = write(form[name]);
    if (name === 'redirect_url') return json === 'null' ? '""' : json;
    return json === 'null' ? undefined : json;
  });

/** The body of a change: what differs from the record. @param {Form} before @param {Form} after @param {string} record the record's text */
export const patch = (before, after, record) =>
  bodyOf(({ name, write, fixed }) => {
    if (fixed || before[name] === after[name]) return undefined;
    const json = write(after[name]);
    if (name === 'redirect_url' && json === 'null') throw new RangeError('must be an absolute http or https URL');
    return name === 'data' && json !== 'null' ? mergePatch(memberText(record, 'data') ?? '{}', json) : json;
  });

/** The names of the fields that differ. @param {Form} one @param {Form} other */
export const differences = (one, other) => SPECS.filter(({ name, fixed }) => !fixed && one[name] !== other[name]).map(({ name }) => name);

/** Whether two forms are the same for the service, however they are typed. @param {Form} one @param {Form} other */
export const areSame = (one, other) =>
  SPECS.every(({ name, write, fixed }) => {
    if (fixed || one[name] === other[name]) return true;
    try {
      return write(one[name]) === write(other[name]);
    } catch {
      return false;
    }
  });

/** @param {string} name */
export const labelOfField = (name) => SPECS.find((spec) => spec.name === name)?.label ?? name;

/** The number of a line that is not blank, from its place among those. @param {string} text @param {number} place */
const lineOf = (text, place) => (text.split('\n').flatMap((line, i) => (line.trim() ? [i + 1] : []))[place] ?? place + 1);

/** The faults of a field, for people. @param {any} error @param {string} name @param {Form} form */
export function faultOf(error, name, form) {
  if (error?.slug === 'slug-taken' && name === 'slug') return 'this name is taken by another link';
  const found = (error?.errors ?? []).filter((/** @type {FieldFault} */ { pointer }) => pointer === `/${name}` || pointer?.startsWith(`/${name}/`));
  const told = found.map((/** @type {FieldFault} */ { pointer = '', detail }) => {
    const [, , place, ...deeper] = pointer.split('/');
    if (place === undefined) return detail;
    if (name === 'webhooks') return `line ${lineOf(form.webhooks, Number(place))} ${detail}`;
    if (name === 'tags') return `“${parts(form.tags)[Number(place)] ?? place}” ${detail}`;
    return `${[place, ...deeper].join('/')}: ${detail}`;
  });
  return told.join('; ') || undefined;
}

/** What is wrong beside the fields that a form shows. @param {any} error @param {(name: string) => boolean} shows */
export function otherFaults(error, shows) {
  return (error?.errors ?? []).filter((/** @type {FieldFault} */ { pointer }) => !pointer || !shows(pointer.split('/')[1] ?? ''));
}
