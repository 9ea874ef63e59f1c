// Many links at once.
import { html, useEffect, useLayoutEffect, useRef, useState } from '../html.js';
import { bulk, readRows } from '../bulk.js';
import { save, table } from '../csv.js';
import { drafts, useDraft } from '../drafts.js';
import { useCountdown } from '../load.js';
import { counted, number } from '../format.js';
import { session } from '../session.js';
import { Button, Empty, Fault, Field, Seconds, Theirs } from '../ui.js';

const FEW = 200;
/** A larger file would keep the browser busy for long. */
const MOST_FILE_BYTES = 5_000_000;

function useRun() {
  const [run, setRun] = useState(bulk.run);
  useLayoutEffect(() => bulk.watch(() => setRun(bulk.run)), []);
  return run;
}

/** @param {{run: import('../bulk.js').Run}} props */
function State({ run }) {
  const seconds = useCountdown(run.waitUntil);
  if (run.state === 'waiting') return html`<p>${run.error?.status === 429 ? 'The rate limit is reached. ' : ''}<${Seconds} left=${seconds} soon="Sending continues automatically" now="Sending continues." /></p>`;
  if (run.state === 'running') return html`<p>Sending… You can look at other screens meanwhile.</p>`;
  if (run.state === 'done') return html`<p>${run.made === run.total ? 'Finished. All links are made.' : 'Finished. All but the rows below are made.'}</p>`;
  return null;
}

/** @param {{run: import('../bulk.js').Run, onPutBack: () => void, onNew: () => void}} props */
function Progress({ run, onPutBack, onNew }) {
  const done = run.results.length;
  const failed = run.results.filter(({ ok }) => !ok).toSorted((a, b) => a.row.line - b.row.line);
  const title = useRef(/** @type {any} */ (null));
  useLayoutEffect(() => title.current?.focus(), []);
  const download = () => {
    const rows = run.results.toSorted((a, b) => a.row.line - b.row.line).map(({ row, ok, isUnknown, short_url, reason }) => [row.line, ok ? 'made' : isUnknown ? 'unknown' : 'refused', short_url, row.target, reason]);
    save(new Blob([table([['line', 'result', 'short_url', 'redirect_url', 'reason'], ...rows])], { type: 'text/csv' }), 'links-made.csv');
  };
  return html`
    <section class="panel" aria-labelledby="progress-title">
      <header class="tools"><h2 id="progress-title" tabindex="-1" ref=${title}>${number(run.made)} of ${number(run.total)} made</h2>
        ${run.state !== 'done' && html`<${Button} onClick=${bulk.stop}>Stop<//>`}
        ${run.state === 'done' && html`<${Button} icon="save" onClick=${download}>Results as CSV<//>`}
        ${run.state === 'done' && failed.some(({ isUnknown }) => !isUnknown) && html`<${Button} onClick=${onPutBack}>Put refused rows back<//>`}
        ${run.state === 'done' && html`<${Button} onClick=${onNew}>New list<//>`}
      </header>
      <progress max=${run.total} value=${done} aria-label="Rows that are done"></progress>
      <div role="status"><${State} run=${run} /></div>
      ${run.state === 'stopped' && html`
        <${Fault} error=${run.error} onRetry=${bulk.resume}><p>${counted(run.total - done, 'row')} not sent yet. Going on makes no link twice.</p><//>
      `}
      ${failed.length > 0 && html`
        <h3 class="refused">${counted(failed.length, 'row')} refused${failed.some(({ isUnknown }) => isUnknown) ? ', or not known to be made' : ''}</h3>
        <div class="scroll" tabindex="0" role="region" aria-label="Refused rows">
          <table class="refusals"><thead><tr><th scope="col" class="num">Line</th><th scope="col">Target</th><th scope="col">Reason</th></tr></thead>
          <tbody>${failed.slice(0, FEW).map(({ row, reason }) => html`<tr key=${row.line}><td class="num">${row.line}</td><td class="to" title=${row.target}><${Theirs}>${row.target || row.source}<//></td><td>${reason}</td></tr>`)}</tbody></table>
        </div>
        ${failed.length > FEW && html`<p class="soft small">And ${number(failed.length - FEW)} more: see the results as CSV.</p>`}
      `}
    </section>
  `;
}

function Compose() {
  const [text, setText] = useDraft('many', '');
  const [fault, setFault] = useState('');
  const [replaced, setReplaced] = useState('');
  const { rows, ignored, header } = readRows(text);
  const bad = rows.filter((row) => row.fault);
  const open = async (event) => {
    const [file] = event.target.files;
    event.target.value = '';
    if (!file) return;
    if (file.size > MOST_FILE_BYTES) return setFault(`${file.name} has more than ${number(MOST_FILE_BYTES / 1_000_000)} MB: open it in parts`);
    const read = await file.text();
    setReplaced(text.trim() && text !== read ? text : '');
    setFault('');
    setText(read);
  };
  const submit = (event) => {
    event.preventDefault();
    setFault(rows.length ? '' : 'paste at least one address');
    if (rows.length) bulk.start(rows, header);
  };
  return html`
    <section class="panel">
      <form onSubmit=${submit} novalidate>
        <${Field} label="Addresses" error=${fault} hint="One per line. After a space you may add an own name, then a title. Or a CSV with a header line: redirect_url, slug, title, tags, notes, webhooks, expires_at, not_before, fallback_url, redirect_status, cache_seconds, archived, tracked, preview, skip_bots, data.">
          ${(wiring) => html`<textarea ...${wiring} rows="12" class="mono" spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)} placeholder=${'https://example.com/a/long/address\nhttps://example.com/sale autumn-sale Autumn sale'}></textarea>`}
        <//>
        ${replaced && html`<p class="note" role="status">The file has replaced the text that was here. <button type="button" class="plain" onClick=${() => { setText(replaced); setReplaced(''); }}>Put that back</button></p>`}
        <div class="tools many-tools">
          <p role="status" class="soft small">${rows.length ? `${counted(rows.length, 'row')}${header ? ', as CSV' : ''}${bad.length ? `, ${number(bad.length)} can’t be sent (line ${bad[0].line}: ${bad[0].fault})` : ''}${ignored.length ? `. Columns that are not used: ${ignored.join(', ')}` : ''}` : 'No rows yet.'}</p>
          <label class="button file"><input type="file" accept=".csv,.tsv,.txt,text/csv,text/plain" class="vh" onChange=${open} /><span>Open a file…</span></label>
          <button type="submit" class="button primary"><span>${rows.length ? `Make ${counted(rows.length, 'link')}` : 'Make links'}</span></button>
        </div>
      </form>
    </section>
  `;
}

export function Many() {
  const run = useRun();
  const [round, setRound] = useState(0);
  useEffect(() => {
    document.title = 'Many links · Signpost';
  }, []);
  // The draft is what was not made.
  const back = () => {
    bulk.close();
    setRound((n) => n + 1);
  };
  const begin = () => {
    drafts.keep('many', undefined);
    back();
  };
  if (!session.may('links:write')) return html`<h1>Many links at once</h1><section class="panel"><${Empty} title="This key can’t make links">It lacks the scope links:write.<//></section>`;
  return html`
    <h1>Many links at once</h1>
    ${run ? html`<${Progress} run=${run} onPutBack=${back} onNew=${begin} />` : html`<${Compose} key=${round} />`}
  `;
}
