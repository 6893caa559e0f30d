"use strict";

// Rows, cells and curves.

const filled = {};

// Rows with the same content stay, and so does what is selected in them.
const MOST_ROWS = 200;

// There may be more than these `items`: `total`.
function fill(id, columns, nothing, items, make, { body = $(id), total = items.length } = {}) {
  const text = JSON.stringify([items, nothing, total]);
  if (filled[id] === text) return;
  filled[id] = text;
  const rows = items.slice(0, MOST_ROWS).map(make);
  const rest = total - rows.length;
  if (rest > 0) rows.push(emptyRow(columns, `and ${number(rest)} more`));
  body.replaceChildren(...(rows.length ? rows : [emptyRow(columns, nothing)]));
}

function cells(...pairs) {
  const made = element("tr");
  for (const [label, content, className] of pairs) {
    const one = cell(label, className);
    one.append(content);
    made.append(one);
  }
  return made;
}

function emptyRow(columns, text) {
  const made = element("tr", "empty");
  const content = element("td", "", text);
  content.colSpan = columns;
  made.append(content);
  return made;
}

function spark(node, points) {
  const now = serverNow();
  const inSpan = points.map(([at, value]) => [Math.max(at, now - SPAN), value]);
  const most = Math.max(1, ...inSpan.map(([, value]) => value));
  const x = (at) => (300 * (1 - (now - at) / SPAN)).toFixed(1);
  const y = (value) => (34 - (32 * value) / most).toFixed(1);
  node.replaceChildren();
  // Without waiters there is nothing to draw.
  if (!inSpan.some(([, value]) => value > 0)) return 0;
  // Steps: a number stands until the next one.
  let line = `M${x(inSpan[0][0])} 34`;
  for (const [at, value] of inSpan) line += `H${x(at)}V${y(value)}`;
  line += "H300V34Z";
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", line);
  node.append(path);
  return Math.max(...inSpan.map(([, value]) => value));
}

// One number for each step of the last minutes, the newest last.
function sparkOfSteps(steps) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const most = Math.max(1, ...steps);
  node.setAttribute("class", "spark");
  node.setAttribute("viewBox", "0 0 300 36");
  node.setAttribute("preserveAspectRatio", "none");
  node.setAttribute("role", "img");
  node.setAttribute("aria-label", `At most ${plural(most, "waiter", "waiters")} in the last minutes`);
  const width = 300 / steps.length;
  const line = steps.map((value, at) => `V${(34 - (32 * value) / most).toFixed(1)}H${((at + 1) * width).toFixed(1)}`);
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", `M0 34${line.join("")}V34Z`);
  node.append(path);
  return node;
}
