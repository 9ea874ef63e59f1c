// Serves the console beside a fake of the API: as a program serves it, or else from `src/console`. Or from there beside a program's API.
//   node server.mjs [--port 8090] [--api http://127.0.0.1:8080] [--console http://127.0.0.1:8080] [--path /below/this]
import { createServer, request as httpRequest } from 'node:http';
import { pathToFileURL } from 'node:url';
import { ALL_HEADERS, PAGE_HEADERS, fileAt } from './files.mjs';
import { Fake } from './fake.mjs';

function send(response, status, headers, body = '') {
  response.writeHead(status, headers);
  response.end(body);
}

function serveSources(response, path) {
  if (path === '/console/') return send(response, 308, { location: '../console' });
  const file = fileAt(path);
  if (!file) return send(response, 404, {});
  return send(response, 200, { 'content-type': file.type, 'cache-control': 'no-cache', ...ALL_HEADERS, ...(path === '/console' && PAGE_HEADERS) }, file.text);
}

function proxy(request, response, path, to) {
  const url = new URL(path, to);
  const onward = httpRequest(url, { method: request.method, headers: { ...request.headers, host: url.host } }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  onward.on('error', () => response.destroy());
  response.on('close', () => onward.destroy());
  request.pipe(onward);
}

/** @param {{port?: number, api?: string, console?: string, path?: string}} options `console`: the program that serves the console. */
export async function start({ port = 0, api, console: program, path: below = '' } = {}) {
  const fake = api ? undefined : new Fake();
  const server = createServer((request, response) => {
    if (!request.url.startsWith(`${below}/`)) return send(response, 404, {});
    const url = request.url.slice(below.length);
    const [path] = url.split('?');
    if (path === '/console' || path.startsWith('/console/')) return program ? proxy(request, response, url, program) : serveSources(response, path);
    if (api) return proxy(request, response, url, api);
    return fake.answer(request, response, url);
  });
  await new Promise((done) => server.listen(port, '127.0.0.1', done));
  const base = `http://127.0.0.1:${server.address().port}${below}`;
  if (fake) fake.base = base;
  return { base, fake, close: () => (server.closeAllConnections(), server.close()) };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const options = Object.fromEntries(process.argv.slice(2).join(' ').split('--').filter(Boolean).map((one) => one.trim().split(/[ =]/)));
  const { base, fake } = await start({ ...options, port: Number(options.port ?? 8090) });
  console.log(`${base}/console${fake ? ` with a fake of the API; key: ${fake.secret}` : ''}`);
}
