// Judges the requests of standard input: by the page's function, and by Standard Webhooks' library.

import { readFileSync } from 'node:fs';
import { Webhook } from 'standardwebhooks';
import { isGenuine } from './page.mjs';

function isVerified(secret, headers, body) {
  try {
    new Webhook(secret).verify(body, headers);
    return true;
  } catch {
    return false;
  }
}

const requests = JSON.parse(readFileSync(0));
const judge = (judgement) =>
  requests.map(({ secret, headers, body }) => judgement(secret, headers, Buffer.from(body, 'base64')));
console.log(JSON.stringify({ "page's js": judge(isGenuine), 'standardwebhooks from npm': judge(isVerified) }));
