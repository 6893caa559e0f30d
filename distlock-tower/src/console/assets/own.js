"use strict";

// What the process that serves the page holds and waits for itself, with the lines of its code. Needs `console.js`.

// What this process itself holds and waits for. `id` begins the ids of the tables.
function showOwn(id, holds, waits, most) {
  $(`${id}-waits`).hidden = !waits.length;
  $(`${id}-holds`).hidden = !holds.length;
  fill(`${id}-wait-rows`, 4, "", waits, ownWaitRow, most);
  fill(`${id}-hold-rows`, 5, "", holds, ownHoldRow, most);
}

function ownCount(own) {
  if (!own.hold_total && !own.wait_total) return "It holds no lock, and nothing waits.";
  const holds = plural(own.hold_total, "lock", "locks");
  return `It holds ${holds}, and ${plural(own.wait_total, "acquisition waits", "acquisitions wait")}.`;
}

function ownKey(own, label) {
  const content = element("span");
  const link = element("a", "", own.key);
  link.href = keyAddress(own.key);
  content.append(link, element("span", "kind", words(own.kind)));
  return [label, content];
}

// A file and a line. A long one is broken at the folders.
function place(text) {
  const made = element("span", "place");
  for (const part of text.split(/(?<=[/\\])/)) made.append(part, element("wbr"));
  return made;
}

function ownWaitRow(wait) {
  const line = element("span");
  line.append(place(wait.place));
  if (wait.inside.length) line.append(element("span", "kind", `inside ${wait.inside.join(", ")}`));
  const since = element("span");
  const waited = element("span");
  const left = element("span", "kind", "without limit");
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
  if (by.by === "own_hold") content.append(place(by.place));
  else if (holder?.client) content.append(element("span", "", holder.client.name));
  else content.append(element("span", "", by.by === "other_client" ? "another client" : "not known"));
  if (wait.ahead > 0) content.append(element("span", "kind", `and ${plural(wait.ahead, "other", "others")} of this process`));
  return content;
}

function ownHoldRow(hold) {
  const held = element("span");
  clock(held, (node) => { node.textContent = duration(serverNow() - hold.since); });
  const left = element("span", "", "no end");
  if (hold.lease_ends !== null) {
    clock(left, (node) => { node.textContent = duration(hold.lease_ends - serverNow()); });
  }
  const count = element("span", "", number(hold.count));
  return cells(ownKey(hold, "Holds"), ["Line", place(hold.place)], ["Held for", held], ["Lease left", left], ["Count", count, "number"]);
}
