"use strict";

// What the process that serves the page holds and waits for itself, with the lines of its code. Its functions use those of the other files.

// On the page of a key: each hold and each wait. `id` begins the ids of the tables.
function showOwn(id, detail) {
  $(`${id}-waits`).hidden = !detail.own_waits.length;
  $(`${id}-holds`).hidden = !detail.own_holds.length;
  fill(`${id}-wait-rows`, 4, "", detail.own_waits, ownWaitRow, { total: detail.own_wait_total });
  fill(`${id}-hold-rows`, 5, "", detail.own_holds, ownHoldRow, { total: detail.own_hold_total });
}

const WAIT_HEADS = ["Waits for", "Line that waits", "Has waited", "Behind"];
const HOLD_HEADS = ["Holds", "Line that acquired it", "Held for", "Lease left", "Count"];

// Below the list of the locks: grouped by the line of the code, and folded.
function showOwnLines(own) {
  showLines("own-waits", own.waits, WAIT_HEADS, ownWaitRow, (many) => `${plural(many, "acquisition waits", "acquisitions wait")} here, the first for`);
  showLines("own-holds", own.holds, HOLD_HEADS, ownHoldRow, (many) => `${plural(many, "lock is", "locks are")} held from here, the first for`);
}

const lines = new Map();

// A group stays the same element, so that one that somebody has opened stays open.
function showLines(id, items, heads, make, summary) {
  const groups = new Map();
  for (const item of items) groups.set(item.call_site, [...(groups.get(item.call_site) ?? []), item]);
  const nodes = [...groups].map(([line, group]) => {
    const name = `${id} ${line}`;
    if (!lines.has(name)) lines.set(name, lineGroup(line, heads));
    const made = lines.get(name);
    const oldest = Math.min(...group.map((it) => it.since));
    made.tell = (node) => { node.textContent = `${summary(group.length)} ${duration(serverNow() - oldest)}`; };
    made.tell(made.facts);
    fill(name, heads.length, "", group, make, { body: made.rows });
    return made.details;
  });
  for (const name of lines.keys()) {
    if (name.startsWith(`${id} `) && !groups.has(name.slice(id.length + 1))) {
      lines.delete(name);
      delete filled[name];
    }
  }
  const now = [...$(id).children];
  if (nodes.length === now.length && nodes.every((node, at) => node === now[at])) return;
  $(id).replaceChildren(...nodes);
  for (const made of lines.values()) if ($(id).contains(made.facts)) clock(made.facts, (node) => made.tell(node));
}

function lineGroup(line, heads) {
  const details = element("details", "line");
  const title = element("summary");
  const facts = element("span", "dim");
  title.append(callSite(line), facts);
  const table = element("table");
  const head = element("tr");
  head.append(...heads.map((text) => element("th", text === "Count" ? "number" : "", text)));
  const heading = element("thead");
  heading.append(head);
  table.append(heading, element("tbody"));
  details.append(title, table);
  return { details, facts, rows: table.tBodies[0] };
}

function ownCount(own) {
  if (!own.hold_total && !own.wait_total) return "It holds no lock, and nothing waits.";
  const holds = plural(own.hold_total, "lock", "locks");
  const isCut = own.hold_total > own.holds.length || own.wait_total > own.waits.length;
  const cut = isCut ? " The lines below have only the oldest of them." : "";
  return `It holds ${holds}, and ${plural(own.wait_total, "acquisition waits", "acquisitions wait")}.${cut}`;
}

function ownKey(own, label) {
  const content = element("span");
  content.append(keyLink(own.key, own.shown), element("span", "kind", words(own.kind)));
  return [label, content];
}

// A file and a line. A long one is broken at the folders.
function callSite(text) {
  const made = element("span", "call-site");
  for (const part of text.split(/(?<=[/\\])/)) made.append(part, element("wbr"));
  return made;
}

function ownWaitRow(wait) {
  const line = element("span");
  line.append(callSite(wait.call_site));
  if (wait.inside.length) line.append(element("span", "kind", `inside ${wait.inside.map((it) => cutName(it)).join(", ")}`));
  const since = element("span");
  const waited = element("span");
  const left = element("span", "kind", "without limit");
  waited.title = `since ${moment(wait.since)}`;
  clock(waited, (node) => { node.textContent = duration(serverNow() - wait.since); });
  if (wait.gives_up !== null) {
    clock(left, (node) => { node.textContent = `gives up in ${duration(wait.gives_up - serverNow())}`; });
  }
  since.append(waited, left);
  return cells(ownKey(wait, "Waits for"), ["Line that waits", line], ["Has waited", since], ["Behind", behind(wait)]);
}

function behind(wait) {
  const content = element("span");
  const by = wait.blocked_by;
  const holder = locks.get(wait.key)?.holders[0];
  if (by.by === "own_hold") content.append(callSite(by.call_site));
  else if (holder?.client) content.append(element("span", "", holder.client.name));
  else content.append(element("span", "", by.by === "other_client" ? "another client" : "not known"));
  if (wait.ahead > 0) content.append(element("span", "kind", `and ${plural(wait.ahead, "other", "others")} of this process`));
  return content;
}

function ownHoldRow(hold) {
  const held = element("span");
  held.title = `since ${moment(hold.since)}`;
  clock(held, (node) => { node.textContent = duration(serverNow() - hold.since); });
  const left = element("span", "", "no end");
  if (hold.lease_ends !== null) {
    clock(left, (node) => { node.textContent = duration(hold.lease_ends - serverNow()); });
  }
  const count = element("span", "", number(hold.count));
  return cells(ownKey(hold, "Holds"), ["Line", callSite(hold.call_site)], ["Held for", held], ["Lease left", left], ["Count", count, "number"]);
}
