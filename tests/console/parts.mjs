// The console's parts without a screen.
import { join } from 'node:path';
import { readFileSync } from 'node:fs';
import { assert, test } from './common.mjs';
import { SOURCES } from './files.mjs';

/** A module of the console without imports of others, outside a browser. */
const module = (name) => import(`data:text/javascript;base64,${Buffer.from(readFileSync(join(SOURCES, name))).toString('base64')}`);

test('JSON keeps its numbers and the order of its members', async () => {
  const { members, memberText, mergePatch, minified, pretty } = await module('json.js');
  assert.equal(minified(' { "a" : [ 1.0 , 12345678901234567890 ] , "b":{ } } '), '{"a":[1.0,12345678901234567890],"b":{}}');
  assert.equal(pretty('{"a":[1.0,{"b":[]}],"c":{},"d":"x,{"}'), '{\n  "a": [\n    1.0,\n    {\n      "b": []\n    }\n  ],\n  "c": {},\n  "d": "x,{"\n}');
  assert.deepEqual([...members('{"a":{"b":[1,2]},"c":"}","d":null}')], [['a', '{"b":[1,2]}'], ['c', '"}"'], ['d', 'null']]);
  assert.deepEqual([...members('{}')], []);
  assert.equal(members('[1]'), null);
  assert.equal(memberText('{"x":1,"data":{"n":1.50}}', 'data'), '{"n":1.50}');
  assert.throws(() => members('{"a":1'));
  for (const [from, to, patch] of [
    ['{"a":1,"b":{"c":1,"d":2}}', '{"a":1,"b":{"d":2.0,"e":[null]}}', '{"b":{"c":null,"d":2.0,"e":[null]}}'],
    ['{"a":1}', '{}', '{"a":null}'],
    ['{"a":1}', '{"a":{}}', '{"a":{}}'],
    ['{"a":{"b":1}}', '{"a":2}', '{"a":2}'],
    ['{}', '{"a":{"b":{"c":1}}}', '{"a":{"b":{"c":1}}}'],
  ]) assert.equal(mergePatch(from, to), patch);
  assert.throws(() => mergePatch('{}', '{"a":null}'), /can’t be set to null/);
});

test('CSV is read with quotes and written without formulas', async () => {
  const { parseCsv, table } = await module('csv.js');
  assert.deepEqual(parseCsv('a,"b ""c""\nd"\r\n\r\ne,f', ','), [{ line: 1, cells: ['a', 'b "c"\nd'] }, { line: 4, cells: ['e', 'f'] }]);
  assert.equal(table([['=1+1', 'a,b', null, 3]]), "'=1+1,\"a,b\",,3\r\n");
});

test('events are read whatever the parts they come in', async () => {
  const text = readFileSync(join(SOURCES, 'stream.js'), 'utf8').replace(/^import .*$/m, '');
  const { readEvents } = await import(`data:text/javascript;base64,${Buffer.from(text).toString('base64')}`);
  const bytes = new TextEncoder().encode(': hi\nretry: 3000\nid: 0\n\nevent: hit\r\nid: 1\r\ndata: {"label":"é"}\r\n\r\nevent: skipped\ndata: {"count":\ndata: 2}\n\n');
  for (const size of [1, 2, 3, 7, 1000]) {
    const found = [];
    const body = new ReadableStream({
      start(to) {
        for (let i = 0; i < bytes.length; i += size) to.enqueue(bytes.slice(i, i + size));
        to.close();
      },
    });
    await readEvents(body, (...event) => found.push(event));
    assert.deepEqual(found, [['message', '', '0'], ['hit', '{"label":"é"}', '1'], ['skipped', '{"count":\n2}', '1']], `parts of ${size}`);
  }
});

test('only http and https targets become links', async () => {
  const { safeHref, ago, localTime } = await module('format.js');
  for (const bad of ['javascript:alert(1)', ' JaVaScRiPt:alert(1)', 'data:text/html,x', 'vbscript:x', '//x', 'x', 'file:///etc/passwd', 'blob:https://x/y']) assert.equal(safeHref(bad), undefined, bad);
  assert.equal(safeHref('https://example.com/'), 'https://example.com/');
  assert.equal(ago('2026-11-20T00:00:00Z', Date.parse('2026-11-23T00:00:00Z')), '3 days ago');
  assert.equal(new Date(localTime('2026-11-20T10:20:30.400Z')).toISOString(), '2026-11-20T10:20:30.400Z');
});

