// JSON as text. Parsing a number and writing it again may change it (1.0, 12345678901234567890), and `data` is kept as sent.

const TOKEN = /\s*("(?:[^"\\\u0000-\u001f]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}[\],:])/y;

/** The tokens of a valid JSON text. @param {string} text */
function tokens(text) {
  JSON.parse(text);
  const found = [];
  TOKEN.lastIndex = 0;
  for (let match = TOKEN.exec(text); match; match = TOKEN.exec(text)) found.push(match[1]);
  return found;
}

/** Without white space between tokens. @param {string} text */
export const minified = (text) => tokens(text).join('');

/** The members of an object, in order, each with the text of its value; null if the text is not an object.
 * @param {string} text @returns {Map<string, string> | null} */
export function members(text) {
  const all = tokens(text);
  if (all[0] !== '{') return null;
  const found = new Map();
  for (let i = 1; all[i] !== '}' && i < all.length; i += 1) {
    const name = JSON.parse(all[i]);
    const start = i + 2;
    let depth = 0;
    for (i = start; depth > 0 || (all[i] !== ',' && all[i] !== '}'); i += 1) {
      if (all[i] === '{' || all[i] === '[') depth += 1;
      if (all[i] === '}' || all[i] === ']') depth -= 1;
    }
    found.delete(name);
    found.set(name, all.slice(start, i).join(''));
    if (all[i] === '}') break;
  }
  return found;
}

/** Indented by two spaces. @param {string} text */
export function pretty(text) {
  const all = tokens(text);
  let depth = 0;
  let result = '';
  const line = () => `\n${'  '.repeat(depth)}`;
  all.forEach((token, i) => {
    const isEmpty = (token === '{' && all[i + 1] === '}') || (token === '[' && all[i + 1] === ']');
    if ((token === '}' || token === ']') && all[i - 1] !== '{' && all[i - 1] !== '[') {
      depth -= 1;
      result += line();
    }
    result += token === ':' ? ': ' : token;
    if (isEmpty) return;
    if (token === '{' || token === '[') depth += 1;
    if (token === '{' || token === '[' || token === ',') result += line();
  });
  return result;
}

/** The text of a record's member. @param {string} record @param {string} name */
export const memberText = (record, name) => members(record)?.get(name);

/** A JSON Merge Patch (RFC 7396) that makes the second text of the first. A patch can't set a member to null, as null removes it.
 * @param {string} from @param {string} to @returns {string} */
export function mergePatch(from, to) {
  const [before, after] = [members(from) ?? new Map(), members(to) ?? new Map()];
  const changes = [];
  for (const name of before.keys()) if (!after.has(name)) changes.push(`${JSON.stringify(name)}:null`);
  for (const [name, value] of after) {
    const old = before.get(name);
    if (old === value) continue;
    if (value === 'null') throw new RangeError(`“${name}” can’t be set to null by an edit: null removes a member`);
    const isObject = value.startsWith('{');
    changes.push(`${JSON.stringify(name)}:${isObject ? mergePatch(old?.startsWith('{') ? old : '{}', value) : value}`);
    // The empty patch of an object in the place of another value makes an empty object, as wanted.
  }
  return `{${changes.join(',')}}`;
}
