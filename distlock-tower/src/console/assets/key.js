"use strict";

// The page of one key, on which it can be freed.

let openKey = null;
let openShown = "";
// Whether a long key is shown whole.
let isWhole = false;

async function loadKey() {
  const key = openKey;
  try {
    const { ok, content } = await ask(`api/lock?key=${encodeURIComponent(key)}`);
    if (key !== openKey) return;
    // While the page is paused, its times are those of the last answer.
    if (ok && paused !== null) paused = content.now;
    if (ok) showKey(content);
    else $("one-facts").textContent = content.error;
  } catch (error) {
    if (key === openKey) state("down", error.message);
  }
}

const MOST_OF_KEY = 160;

function showName() {
  const text = isWhole ? openShown : cutName(openShown, MOST_OF_KEY);
  if ($("one-key").textContent !== text) $("one-key").textContent = text;
  $("whole").hidden = isWhole || text === openShown;
  $("as-shown").hidden = openShown === openKey;
}

function showKey(detail) {
  const { lock } = detail;
  openShown = detail.shown;
  showName();
  const facts = [];
  if (lock) {
    facts.push(kind(lock), plural(lock.waiting, "waiter", "waiters"));
    if (lock.listening) facts.push(plural(lock.listening, "process listens", "processes listen"));
    if (lock.fencing_token !== null) facts.push(`fencing token ${lock.fencing_token}`);
  } else if (detail.has_other_data) {
    facts.push("no lock: another program keeps data under this key");
  } else {
    facts.push(detail.trouble ? `not known: ${detail.trouble.text}` : "free");
  }
  $("one-facts").textContent = facts.join(" · ");
  seen = {
    owners: (lock?.holders ?? []).map((holder) => holder.owner),
    number: lock?.permits?.free ?? lock?.count ?? null,
  };
  if (lock) showReleaseOf(lock);
  fill("one-holders", 4, "Nobody holds it.", lock?.holders ?? [], holderRow);
  $("queue").hidden = !lock?.waiters.length;
  fill("one-waiters", 2, "", lock?.waiters ?? [], waiterRow);
  $("one-own").hidden = !(detail.own_holds.length || detail.own_waits.length);
  showOwn("one-own", detail);
  spark($("one-contention"), detail.waiting);
  fill("one-past", 5, "No earlier hold was seen. Holds are noted while somebody watches.", detail.past, pastRow);
  $("release").hidden = !(detail.may_force_release && (lock?.can_be_released || $("released").textContent));
}

function holderRow(holder) {
  return cells(["Holder", owner(holder)], ["Held for", age(holder)], ["Lease left", lease(holder)], ["Count", element("span", "", number(holder.count)), "number"]);
}

function waiterRow(waiter) {
  const waits = element("span");
  clock(waits, (node) => { node.textContent = `over ${duration(serverNow() - waiter.since)}`; });
  waits.title = `seen first at ${moment(waiter.since)}`;
  return cells(["Waiter", owner(waiter)], ["Waits for", waits]);
}

const ENDS = { released: "released", lease_ran_out: "lease ran out", force_released: "freed by force", unknown: "not known" };

// If more milliseconds lie between two looks, the later one does not tell when a hold ended.
const LONG = 6000;

function pastRow(past) {
  const ended = element("span");
  clock(ended, (node) => {
    const ago = duration(serverNow() - past.until);
    node.textContent = past.until - past.last_seen > LONG ? `${ago} to ${duration(serverNow() - past.last_seen)} ago` : `${ago} ago`;
  });
  // Nothing tells the moment, unless this console has freed it.
  ended.title = past.last_seen < past.until ? `between ${moment(past.last_seen)} and ${moment(past.until)}` : moment(past.until);
  const held = past.is_exact ? `about ${duration(past.until - past.since)}` : `over ${duration(past.last_seen - past.since)}`;
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
  // How it is shown follows with the answer.
  [openShown, isWhole] = [key, false];
  showName();
  $("one-facts").textContent = "";
  $("confirmation").value = "";
  [seen, meant] = [NOTHING, null];
  $("released").textContent = "";
  $("one-own").hidden = true;
  $("release").hidden = true;
  $("one-key").focus({ preventScroll: true });
  scrollTo(0, 0);
  void loadKey();
}

// The owners and the number that the page of a key shows, and those that it showed when somebody began to type the key.
const NOTHING = { owners: [], number: null };
let seen = NOTHING;
let meant = null;

function type() {
  if (!$("confirmation").value) meant = null;
  else meant ??= seen;
}

const LOCK = ["Free this lock by force", "The holder is not stopped. It may go on for a while, beside the next owner.", "Free the lock"];
const SEMAPHORE = ["Delete this semaphore by force", "Work that has a permit is not stopped, and nobody gets a permit until the number is set again.", "Delete the semaphore"];
const RELEASES = {
  semaphore: SEMAPHORE,
  expirable_semaphore: SEMAPHORE,
  count_down_latch: ["Open this latch by force", "It is deleted, and all that wait for it go on.", "Open the latch"],
  number: ["Delete this number by force", "It is a semaphore or a latch that nobody uses at the moment, or a number of another program.", "Delete the number"],
};

function showReleaseOf(lock) {
  const texts = RELEASES[lock.primitive] ?? LOCK;
  ["release-title", "release-means", "release-button"].forEach((id, at) => {
    if ($(id).textContent !== texts[at]) $(id).textContent = texts[at];
  });
}

async function release(event) {
  event.preventDefault();
  const key = openKey;
  const said = $("released");
  said.textContent = "";
  // Nobody can type a line break into a field.
  if (![key, openShown].includes($("confirmation").value)) {
    said.textContent = "This is not the key. Nothing was freed.";
    return;
  }
  const isNumber = (meant ?? seen).number !== null;
  try {
    const { ok, content } = await ask("api/force-release", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ key, confirmation: key, ...(meant ?? seen) }),
    });
    // The page of another key must not say what became of this one.
    if (key !== openKey) return;
    if (!ok) said.textContent = content.error;
    else if (!content.released) said.textContent = "There was nothing to free.";
    else said.textContent = isNumber ? "It was deleted." : "The lock was freed.";
    $("confirmation").value = "";
    meant = null;
  } catch (error) {
    if (key === openKey) said.textContent = `${error.message}. It may or may not have been freed.`;
  }
}
