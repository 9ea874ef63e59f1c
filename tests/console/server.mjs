// Serves the console as the program does, beside a fake of the API or a proxy to a real one.
//   node server.mjs [--port 8090] [--api http://127.0.0.1:8080] [--path /below/this]
import { createServer, request as httpRequest } from 'node:http';
import { pathToFileURL } from 'node:url';
import { ALL_HEADERS, PAGE_HEADERS, build } from './files.mjs';
import { Fake } from './fake.mjs';

function send(response, status, headers, body = '') {
  response.writeHead(status, headers);
  response.end(body);
}

function serve(request, response, path, files) {
  const zipped = /\bgzip\b/.test(request.headers['accept-encoding'] ?? '');
  const answer = (file, headers) =>
    send(response, 200, { 'content-type': file.type, vary: 'Accept-Encoding', ...(zipped && { 'content-encoding': 'gzip' }), ...ALL_HEADERS, ...headers }, zipped ? file.gzip : file.text);
  if (path === '/console/') return send(response, 308, { location: '../console' });
  if (path === '/console') {
    const headers = { 'cache-control': 'no-cache', etag: files.etag, ...PAGE_HEADERS };
    if (request.headers['if-none-match'] === files.etag) return send(response, 304, headers);
    return answer(files.page, headers);
  }
  const asset = files.assets.get(path);
  return asset ? answer(asset, { 'cache-control': 'public, max-age=31536000, immutable' }) : send(response, 404, {});
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

/** @param {{port?: number, api?: string, path?: string}} options */
export async function start({ port = 0, api, path: below = '' } = {}) {
  let files = build();
  const fake = api ? undefined : new Fake();
  const server = createServer((request, response) => {
    if (!request.url.startsWith(`${below}/`)) return send(response, 404, {});
    const url = request.url.slice(below.length);
    const [path] = url.split('?');
    if (path === '/console') files = build();
    if (path === '/console' || path.startsWith('/console/')) return serve(request, response, path, files);
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
