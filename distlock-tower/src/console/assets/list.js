"use strict";

// The list of the locks: what matches, in which order, page by page.

const ROWS_PER_PAGE = 100;
let page = 0;
let shown = [];

function kind(lock) {
  const facts = [words(lock.primitive)];
  if (lock.permits) facts.push(`${number(lock.permits.free)} free, ${number(lock.permits.taken)} taken`);
  if (lock.count !== null) facts.push(`count ${number(lock.count)}`);
  if (lock.fault !== null) facts.push(lock.fault);
  return facts.join(", ");
}

function row(lock) {
  const made = element("tr");
  made.dataset.key = lock.key;
  const key = cell("Key");
  key.append(keyLink(lock.key, lock.shown), element("span", "kind", kind(lock)));
  const [held, since, left] = [cell("Holder"), cell("Held for"), cell("Lease left")];
  const first = lock.holders[0];
  if (first) {
    const holders = element("span");
    holders.append(owner(first));
    const others = lock.holder_total - 1;
    if (others > 0) holders.append(element("span", "kind", `and ${plural(others, "other", "others")}`));
    held.append(holders);
    since.append(age(first));
    left.append(lease(first));
  } else {
    held.append(element("span", "kind", lock.fault === null ? "nobody" : "not known"));
  }
  const waiting = cell("Waiting", "number");
  const waiters = element("span");
  waiters.append(element("span", lock.waiting > 0 ? "many" : "", number(lock.waiting)));
  if (lock.listening) {
    const listening = element("span", "kind", plural(lock.listening, "listens", "listen"));
    listening.title = "connections that listen for messages of the key, usually one for each process that waits";
    waiters.append(listening);
  }
  if (lock.contention.length) waiters.append(sparkOfSteps(lock.contention));
  waiting.append(waiters);
  made.append(key, held, since, left, waiting);
  return made;
}

const NEVER = Number.MAX_SAFE_INTEGER;
const byKey = (one, other) => (one.key < other.key ? -1 : one.key > other.key ? 1 : 0);
const since = (lock) => (lock.holders.length ? Math.min(...lock.holders.map((it) => it.since)) : NEVER);
const ends = (lock) => Math.min(NEVER, ...lock.holders.map((it) => it.lease_ends ?? NEVER));
const ORDERS = {
  waiting: (one, other) => other.waiting - one.waiting || since(one) - since(other) || byKey(one, other),
  key: byKey,
  age: (one, other) => since(one) - since(other) || byKey(one, other),
  lease: (one, other) => ends(one) - ends(other) || byKey(one, other),
};

const people = (lock) => [...lock.holders, ...lock.waiters];

function matches(lock, wanted) {
  if (wanted.kind && lock.primitive !== wanted.kind) return false;
  if (wanted.prefix && !lock.key.startsWith(wanted.prefix)) return false;
  if (wanted.client && !people(lock).some((it) => it.client?.name === wanted.client)) return false;
  if (!wanted.search) return true;
  const has = (text) => text.toLowerCase().includes(wanted.search);
  const person = (it) => has(it.owner) || (it.client && has(it.client.name));
  return has(lock.key) || has(lock.shown) || has(lock.primitive) || people(lock).some(person);
}

// What the keys have in common: the part before the first colon or slash.
const prefixOf = (key) => /^[^:/]+[:/]/.exec(key)?.[0];
const MOST_CHOICES = 200;

// The choices of the filters are what the locks have. What is chosen stays, also if no lock has it any more.
function showChoices() {
  const [kinds, prefixes, clients] = [new Set(), new Set(), new Set()];
  for (const lock of locks.values()) {
    kinds.add(lock.primitive);
    prefixes.add(prefixOf(lock.key));
    for (const it of people(lock)) clients.add(it.client?.name);
  }
  offer($("kind"), "all kinds", kinds, words);
  offer($("prefix"), "all keys", prefixes, (it) => `${cutName(it, 40)}…`);
  offer($("client"), "all clients", clients, (it) => cutName(it, 40));
}

function offer(select, all, found, text) {
  const chosen = select.value;
  if (chosen) found.add(chosen);
  const values = [...found].filter(Boolean).sort().slice(0, MOST_CHOICES);
  if (chosen && !values.includes(chosen)) values.push(chosen);
  const known = [...select.options].slice(1).map((it) => it.value);
  if (select.options.length && values.join("\n") === known.join("\n")) return;
  const option = (value, label) => {
    const made = element("option", "", label);
    made.value = value;
    return made;
  };
  select.replaceChildren(option("", all), ...values.map((it) => option(it, text(it))));
  select.value = chosen;
}

function showList() {
  showChoices();
  const wanted = { kind: $("kind").value, prefix: $("prefix").value, client: $("client").value };
  wanted.search = $("search").value.trim().toLowerCase();
  const isFiltered = Object.values(wanted).some(Boolean);
  const found = [...locks.values()].filter((lock) => matches(lock, wanted)).sort(ORDERS[$("sort").value]);
  const pages = Math.max(1, Math.ceil(found.length / ROWS_PER_PAGE));
  page = Math.min(page, pages - 1);
  const rows = found.slice(page * ROWS_PER_PAGE, (page + 1) * ROWS_PER_PAGE);
  $("count").textContent = isFiltered
    ? `${number(found.length)} of ${plural(locks.size, "key", "keys")} match`
    : plural(locks.size, "key", "keys");
  showExact(found.length === 0 ? $("search").value.trim() : "");
  $("pages").hidden = pages === 1;
  $("page").textContent = `Page ${number(page + 1)} of ${number(pages)}`;
  $("previous").disabled = page === 0;
  $("next").disabled = page === pages - 1;
  const nothing = settings.trouble ? "The locks are not known." : "Nothing is locked.";
  showRows(rows, isFiltered ? "No key matches." : nothing);
}

// The page of a key that is not in the list, such as a semaphore that nobody uses.
function showExact(key) {
  const node = $("exact");
  node.hidden = key === "";
  if (node.hidden || node.dataset.key === key) return;
  node.dataset.key = key;
  node.replaceChildren("Numbers that nobody uses are not listed. The page of the key ", keyLink(key, key), " shows what is there.");
}

// A row whose lock is the same object stays, and with it the focus.
function showRows(wanted, nothing) {
  const body = $("rows");
  const old = new Map(shown.map((it) => [it.lock, it.node]));
  shown = wanted.map((lock) => ({ lock, node: old.get(lock) ?? row(lock) }));
  const nodes = shown.map((it) => it.node);
  if (!nodes.length) nodes.push(emptyRow(5, nothing));
  const focused = document.activeElement?.closest?.("tr")?.dataset.key;
  const isFocused = focused !== undefined && body.contains(document.activeElement);
  if (nodes.length !== body.children.length || nodes.some((node, at) => body.children[at] !== node)) {
    body.replaceChildren(...nodes);
    if (isFocused) shown.find((it) => it.lock.key === focused)?.node.querySelector("a").focus({ preventScroll: true });
  }
}
