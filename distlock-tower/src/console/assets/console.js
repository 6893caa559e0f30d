"use strict";

// Texts of locks reach the page by `textContent` alone.

const ROWS_PER_PAGE = 100;
// Above the list. The page of a key has more.
const OWN_ROWS = 10;
const SPAN = 5 * 60 * 1000;
const LATE = 3000;

const $ = (id) => document.getElementById(id);
const locks = new Map();
let settings = { pattern: "*", max_keys: 0, may_force_release: false };
// How far the clock of the server is ahead of this one, in milliseconds.
let ahead = 0;
let page = 0;
let openKey = null;
let heard = 0;
let shown = [];

const serverNow = () => Date.now() + ahead;

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function duration(millis) {
  const seconds = Math.max(0, Math.floor(millis / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const number = (value) => value.toLocaleString("en");
const words = (name) => name.replaceAll("_", " ");
const plural = (count, one, many) => `${number(count)} ${count === 1 ? one : many}`;

// What changes with the time alone: [when it ends or began, how to show it].
let clocks = [];

function clock(node, show) {
  clocks.push([node, show]);
  show(node);
}

function tick() {
  clocks = clocks.filter(([node]) => node.isConnected);
  for (const [node, show] of clocks) show(node);
  const silent = Date.now() - heard;
  if (heard && silent > 8000) state("down", `No news for ${duration(silent)}`);
}

function state(className, text) {
  const node = $("state");
  node.className = className;
  if (node.textContent !== text) node.textContent = text;
}

function cell(label, className) {
  const made = element("td", className);
  made.dataset.label = label;
  return made;
}

function owner(holder) {
  const content = element("span");
  if (holder.client) {
    content.append(element("span", "name", holder.client.name));
    content.title = `${holder.owner} at ${holder.client.address}`;
  }
  content.append(element("span", "owner", shortOwner(holder)));
  return content;
}

// The id of a client is long, and its first part tells clients apart.
function shortOwner(holder) {
  const [client, ...rest] = holder.owner.split(":");
  if (!holder.client || client.length !== 36) return holder.owner;
  return `${client.slice(0, 8)}:${rest.join(":")}`;
}

function age(holder) {
  const content = element("span");
  clock(content, (node) => {
    const text = duration(serverNow() - holder.since);
    node.textContent = holder.is_since_exact ? text : `over ${text}`;
  });
  return content;
}

function lease(holder) {
  const content = element("span");
  if (holder.is_released) content.append(element("span", "kind", "released, and still taken"));
  if (holder.lease_ends === null) {
    content.append(element("span", "", "no end"));
    return content;
  }
  const text = element("span");
  const bar = element("span", "bar");
  const rest = element("i");
  bar.append(rest);
  content.append(text, bar);
  clock(content, (node) => {
    const left = Math.max(0, holder.lease_ends - serverNow());
    text.textContent = left > 0 ? duration(left) : "over";
    rest.style.transform = `scaleX(${Math.min(1, left / Math.max(1, holder.lease_millis))})`;
    node.className = left < LATE ? "late" : "";
  });
  return content;
}

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
  const link = element("a", "", lock.key);
  link.href = keyAddress(lock.key);
  key.append(link, element("span", "kind", kind(lock)));
  const [held, since, left] = [cell("Holder"), cell("Held for"), cell("Lease left")];
  const first = lock.holders[0];
  if (first) {
    held.append(owner(first));
    const others = lock.holder_total - 1;
    if (others > 0) held.append(element("span", "kind", `and ${plural(others, "other", "others")}`));
    since.append(age(first));
    left.append(lease(first));
  } else {
    held.append(element("span", "kind", lock.fault === null ? "nobody" : "not known"));
  }
  const waiting = cell("Waiting", "number");
  const waiters = element("span");
  waiters.append(element("span", lock.waiting > 0 ? "many" : "", number(lock.waiting)));
  if (lock.contention.length) waiters.append(sparkOfSteps(lock.contention));
  waiting.append(waiters);
  made.append(key, held, since, left, waiting);
  return made;
}

// `location.hash` is relative to the base of the page, a link with `#` alone as well: the whole address stays on this page.
const keyAddress = (key) => `${location.pathname}${location.search}#key=${encodeURIComponent(key)}`;

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

function matches(lock, search) {
  if (!search) return true;
  const has = (text) => text.toLowerCase().includes(search);
  const person = (it) => has(it.owner) || (it.client && has(it.client.name));
  return has(lock.key) || has(lock.primitive) || lock.holders.some(person) || lock.waiters.some(person);
}

function showList() {
  const search = $("search").value.trim().toLowerCase();
  const found = [...locks.values()].filter((lock) => matches(lock, search)).sort(ORDERS[$("sort").value]);
  const pages = Math.max(1, Math.ceil(found.length / ROWS_PER_PAGE));
  page = Math.min(page, pages - 1);
  const wanted = found.slice(page * ROWS_PER_PAGE, (page + 1) * ROWS_PER_PAGE);
  $("count").textContent = search
    ? `${number(found.length)} of ${plural(locks.size, "key", "keys")} match`
    : plural(locks.size, "key", "keys");
  $("pages").hidden = pages === 1;
  $("page").textContent = `Page ${number(page + 1)} of ${number(pages)}`;
  $("previous").disabled = page === 0;
  $("next").disabled = page === pages - 1;
  const nothing = settings.trouble ? "The locks are not known." : "Nothing is locked.";
  showRows(wanted, search ? "No key matches." : nothing);
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
  if (!inSpan.length) return 0;
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

function notice(text, isAlarm) {
  return element("p", isAlarm ? "notice alarm" : "notice", text);
}

function notices(update) {
  const found = [];
  if (update.is_closed) {
    found.push(notice("This client is closed: its program is about to end. It takes no more locks.", true));
  }
  const trouble = update.trouble;
  if (trouble?.kind === "denied") {
    found.push(notice(`The server does not allow a look, which needs +scan and the rights of scripts. What is below is older or not complete. ${trouble.text}`, true));
  } else if (trouble) {
    found.push(notice(`The console cannot look at the server, and shows what it saw last. ${trouble.text}`, true));
  }
  if (update.missing_rights.length) {
    const rights = update.missing_rights.map((right) => `${right} (${rightOf(right)})`);
    found.push(notice(`The user lacks ${rights.join(" and ")}.`, false));
  }
  if (update.is_cut) {
    found.push(notice(`There may be more keys: a look stops at ${number(update.max_keys)} locks.`, false));
  }
  const texts = (nodes) => [...nodes].map((it) => it.textContent).join("\n");
  if (texts(found) !== texts($("notices").children)) $("notices").replaceChildren(...found);
}

const rightOf = (right) => (right.includes("client") ? "names of clients" : "number of waiters");

function problems(found) {
  $("problems").hidden = !found.length;
  const item = (problem) => {
    const made = element("li");
    made.append(element("b", "", problem.kind === "possible_deadlock" ? "Possible deadlock: " : "Lost lock: "));
    made.append(element("span", "", problem.text));
    const keys = element("span", "keys");
    for (const key of new Set(problem.keys)) {
      const link = element("a", "", key);
      link.href = keyAddress(key);
      keys.append(link, " ");
    }
    const when = element("span");
    clock(when, (node) => { node.textContent = `${duration(serverNow() - problem.at)} ago`; });
    keys.append(when);
    made.append(keys);
    return made;
  };
  $("problem-list").replaceChildren(...found.map(item));
}

let lastProblems = "";

function hear(update) {
  heard = Date.now();
  ahead = update.now - heard;
  settings = update;
  if (update.is_whole) locks.clear();
  for (const key of update.gone) locks.delete(key);
  for (const lock of update.locks) locks.set(lock.key, lock);
  document.title = update.pattern === "*" ? "Locks" : `Locks ${update.pattern}`;
  state(update.trouble ? "down" : "live", update.trouble ? "Last look failed" : "Live");
  notices(update);
  const text = JSON.stringify(update.problems);
  if (text !== lastProblems) problems(update.problems);
  lastProblems = text;
  const last = update.contention.at(-1);
  $("held").textContent = number(last?.held ?? 0);
  $("waiting").textContent = number(last?.waiting ?? 0);
  $("peak").textContent = number(spark($("contention"), update.contention.map((it) => [it.at, it.waiting])));
  $("own-count").textContent = ownCount(update.own);
  showOwn("own", update.own.holds, update.own.waits, OWN_ROWS);
  if (openKey === null) showList();
  else void loadKey();
}

// An answer of the console. Throws a text that people can read if there is none, or if somebody else has answered: a login
// page, or a proxy while the program is gone.
async function ask(path, options) {
  let answer;
  let text;
  try {
    answer = await fetch(path, { redirect: "manual", ...options });
    text = await answer.text();
  } catch (error) {
    throw new Error("The program does not answer");
  }
  if (answer.type === "opaqueredirect") {
    throw new Error("The answer leads to another page, perhaps to a login: load this page again");
  }
  try {
    return { ok: answer.ok, content: JSON.parse(text) };
  } catch (error) {
    const type = (answer.headers.get("content-type") ?? "no type").split(";")[0];
    throw new Error(`Not the console has answered: ${answer.status} ${answer.statusText} (${type})`);
  }
}

async function loadKey() {
  const key = openKey;
  try {
    const { ok, content } = await ask(`api/lock?key=${encodeURIComponent(key)}`);
    if (key !== openKey) return;
    if (ok) showKey(content);
    else $("one-facts").textContent = content.error;
  } catch (error) {
    if (key === openKey) state("down", error.message);
  }
}

function showKey(detail) {
  const { lock } = detail;
  const facts = [];
  if (lock) {
    facts.push(kind(lock), `${plural(lock.waiting, "waiter", "waiters")}`);
    if (lock.fencing_token !== null) facts.push(`fencing token ${lock.fencing_token}`);
  } else if (detail.has_other_data) {
    facts.push("no lock: another program keeps data under this key");
  } else {
    facts.push(detail.trouble ? `not known: ${detail.trouble.text}` : "free");
  }
  $("one-facts").textContent = facts.join(" · ");
  owners = (lock?.holders ?? []).map((holder) => holder.owner);
  fill("one-holders", 4, "Nobody holds it.", lock?.holders ?? [], holderRow);
  $("queue").hidden = !lock?.waiters.length;
  fill("one-waiters", 2, "", lock?.waiters ?? [], waiterRow);
  $("one-own").hidden = !(detail.own_holds.length || detail.own_waits.length);
  showOwn("one-own", detail.own_holds, detail.own_waits);
  spark($("one-contention"), detail.waiting);
  fill("one-past", 5, "No earlier hold was seen.", detail.past, pastRow);
  $("release").hidden = !(detail.may_force_release && (lock?.can_be_released || $("released").textContent));
}

const filled = {};

// Rows with the same content stay, and so does what is selected in them.
function fill(id, columns, nothing, items, make, most = 200) {
  const text = JSON.stringify([items, nothing]);
  if (filled[id] === text) return;
  filled[id] = text;
  const rows = items.slice(0, most).map(make);
  const rest = items.length - rows.length;
  if (rest > 0) rows.push(emptyRow(columns, `and ${number(rest)} more`));
  $(id).replaceChildren(...(rows.length ? rows : [emptyRow(columns, nothing)]));
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

function holderRow(holder) {
  return cells(["Holder", owner(holder)], ["Held for", age(holder)], ["Lease left", lease(holder)], ["Count", element("span", "", number(holder.count)), "number"]);
}

function waiterRow(waiter) {
  const waits = element("span");
  clock(waits, (node) => { node.textContent = `over ${duration(serverNow() - waiter.since)}`; });
  return cells(["Waiter", owner(waiter)], ["Waits for", waits]);
}

const ENDS = { released: "released", lease_ran_out: "lease ran out", force_released: "freed by force", unknown: "while nobody watched" };

function pastRow(past) {
  const ended = element("span");
  clock(ended, (node) => { node.textContent = `${duration(serverNow() - past.until)} ago`; });
  const held = `${past.is_exact ? "about " : "over "}${duration(past.until - past.since)}`;
  const end = ENDS[past.end] + (past.by ? ` by ${past.by}` : "");
  return cells(["Holder", owner(past)], ["Ended", ended], ["Held for", element("span", "", held)], ["End", element("span", ["released", "unknown"].includes(past.end) ? "" : "many", end)], ["Most waiters", element("span", "", number(past.most_waiting)), "number"]);
}

function route() {
  const match = /^#key=(.*)$/s.exec(location.hash);
  let key = null;
  try {
    key = match && decodeURIComponent(match[1]);
  } catch (error) {
    key = null;
  }
  openKey = key;
  $("list").hidden = key !== null;
  $("one").hidden = key === null;
  if (key === null) {
    showList();
    return;
  }
  for (const id of Object.keys(filled)) delete filled[id];
  for (const id of ["one-holders", "one-waiters", "one-own-wait-rows", "one-own-hold-rows", "one-past"]) $(id).replaceChildren();
  $("one-key").textContent = key;
  $("one-facts").textContent = "";
  $("confirmation").value = "";
  [owners, meant] = [[], null];
  $("released").textContent = "";
  $("one-own").hidden = true;
  $("release").hidden = true;
  $("one-key").focus({ preventScroll: true });
  scrollTo(0, 0);
  void loadKey();
}

// The owners that the page of a key shows, and those that it showed when somebody began to type the key.
let owners = [];
let meant = null;

function type() {
  if (!$("confirmation").value) meant = null;
  else meant ??= owners;
}

async function release(event) {
  event.preventDefault();
  const said = $("released");
  said.textContent = "";
  if ($("confirmation").value !== openKey) {
    said.textContent = "This is not the key. Nothing was freed.";
    return;
  }
  try {
    const { ok, content } = await ask("api/force-release", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ key: openKey, confirmation: $("confirmation").value, owners: meant ?? owners }),
    });
    if (!ok) said.textContent = content.error;
    else said.textContent = content.released ? "The lock was freed." : "Nobody held the lock.";
    $("confirmation").value = "";
    meant = null;
  } catch (error) {
    said.textContent = `${error.message}. The lock may or may not have been freed.`;
  }
}

// The open stream of events; `null` while the tab is hidden, and between two attempts.
let events = null;
let attempt = 0;
const PAUSED = "Paused while nobody sees it";

function listen() {
  clearTimeout(attempt);
  events?.close();
  events = null;
  // A browser has few connections for all tabs of a host, and the server looks only for people who watch.
  if (document.hidden) {
    heard = 0;
    state("", PAUSED);
    return;
  }
  if ($("state").textContent === PAUSED) state("", "Connecting ..");
  const opened = new EventSource("api/events");
  events = opened;
  opened.addEventListener("look", (event) => hear(JSON.parse(event.data)));
  // A browser gives up after some answers, such as those of a proxy while the program restarts.
  opened.addEventListener("error", () => {
    if (opened.readyState === EventSource.CLOSED && opened === events) void failed();
  });
}

// Says why there is no stream, which the browser does not tell, and tries again.
async function failed() {
  events = null;
  attempt = setTimeout(listen, 3000);
  const why = await ask("api/locks").then(
    ({ ok, content }) => (ok ? null : (content.error ?? "The console refuses to answer")),
    (error) => error.message,
  );
  if (why !== null && events === null && !document.hidden) state("down", why);
}

function start() {
  let typed = 0;
  $("search").addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => { page = 0; showList(); }, 60);
  });
  $("sort").addEventListener("change", () => { page = 0; showList(); });
  $("previous").addEventListener("click", () => { page -= 1; showList(); });
  $("next").addEventListener("click", () => { page += 1; showList(); });
  $("release-form").addEventListener("submit", release);
  $("confirmation").addEventListener("input", type);
  $("back").href = `${location.pathname}${location.search}#`;
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target instanceof HTMLInputElement;
    if (event.key === "/" && !isTyping && openKey === null) {
      event.preventDefault();
      $("search").focus();
    } else if (event.key === "Escape" && openKey !== null) {
      location.hash = "";
    }
  });
  addEventListener("hashchange", route);
  document.addEventListener("visibilitychange", listen);
  setInterval(tick, 1000);
  route();
  listen();
}

start();
