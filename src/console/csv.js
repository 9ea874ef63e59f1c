// Lists that people paste, and tables to take away.

/** RFC 4180, with commas, semicolons or tabs. @param {string} text @param {string} separator @returns {{line: number, cells: string[]}[]} */
export function parseCsv(text, separator) {
  const rows = [];
  let line = 1;
  let row = { line, cells: [''] };
  let isQuoted = false;
  const end = () => {
    if (row.cells.length > 1 || row.cells[0].trim()) rows.push(row);
  };
  for (let i = 0; i < text.length; i += 1) {
    const [char, last] = [text[i], row.cells.length - 1];
    if (char === '\n') line += 1;
    if (isQuoted && char === '"' && text[i + 1] === '"') {
      row.cells[last] += '"';
      i += 1;
    } else if (char === '"' && (isQuoted || row.cells[last] === '')) {
      isQuoted = !isQuoted;
    } else if (!isQuoted && char === separator) {
      row.cells.push('');
    } else if (!isQuoted && char === '\n') {
      end();
      row = { line, cells: [''] };
    } else if (isQuoted || char !== '\r') {
      row.cells[last] += char;
    }
  }
  end();
  return rows;
}

/** A cell; a spreadsheet would run a text that begins like a formula. @param {unknown} value */
function cell(value) {
  const text = String(value ?? '').replace(/^(?=[=+\-@\t\r])/, "'");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** @param {unknown[][]} rows */
export const table = (rows) => rows.map((row) => `${row.map(cell).join(',')}\r\n`).join('');

/** Gives a file to the person. @param {Blob} blob @param {string} name */
export function save(blob, name) {
  const to = document.createElement('a');
  to.href = URL.createObjectURL(blob);
  to.download = name;
  document.body.append(to);
  to.click();
  to.remove();
  setTimeout(() => URL.revokeObjectURL(to.href), 60_000);
}
