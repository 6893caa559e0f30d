"use strict";

// The state of the page, and the stream of events that changes it. The other files have what it shows.

const locks = new Map();
let settings = { pattern: "*", max_keys: 0, may_force_release: false };
// How far the clock of the server is ahead of this one, in milliseconds.
let ahead = 0;
let heard = 0;
// The time at which somebody paused the page; `null` if it goes on.
let paused = null;

const serverNow = () => paused ?? Date.now() + ahead;

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
  } else if (trouble?.kind === "partial") {
    found.push(notice(`The last look could not be finished, so some locks are missing below. ${trouble.text}`, true));
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

const MOST_OF_PROBLEM = 600;
// The others are folded, so that an outage with many lost locks does not push the list of the locks away.
const MOST_PROBLEMS = 3;

function problems(found) {
  $("problems").hidden = !found.length;
  const item = (problem) => {
    const made = element("li");
    made.append(element("b", "", problem.kind === "possible_deadlock" ? "Possible deadlock: " : "Lost lock: "));
    const text = element("span", "", cutName(problem.text, MOST_OF_PROBLEM));
    if (text.textContent !== problem.text) text.title = problem.text;
    made.append(text);
    const keys = element("span", "keys");
    const shown = new Map(problem.keys.map((key, at) => [key, problem.shown[at]]));
    for (const [key, text] of shown) keys.append(keyLink(key, text), " ");
    const when = element("span");
    when.title = moment(problem.at);
    clock(when, (node) => { node.textContent = `${duration(serverNow() - problem.at)} ago`; });
    keys.append(when);
    made.append(keys);
    return made;
  };
  const made = found.map(item);
  const rest = made.splice(MOST_PROBLEMS);
  $("problem-list").replaceChildren(...made);
  const more = $("more-problems");
  more.hidden = !rest.length;
  more.querySelector("summary").textContent = `${number(rest.length)} more`;
  more.querySelector("ul").replaceChildren(...rest);
}

// Where the locks are: the same words in the head and in the title, which stands on the tab.
function head(update) {
  const { environment, pattern, prefix, server } = update;
  const of = pattern === "*" ? [] : [`keys ${pattern}`];
  const where = [`server ${server}`, ...(prefix ? [`prefix ${prefix}`] : []), ...of];
  document.title = [...(environment ? [environment] : []), "Locks", ...where].join(" · ");
  $("environment").hidden = !environment;
  $("environment").textContent = environment ?? "";
  $("where").textContent = [...where, `distlock ${update.version}`].join(" · ");
}

let lastProblems = "";

function hear(update) {
  heard = Date.now();
  ahead = update.now - heard;
  settings = update;
  if (update.is_whole) locks.clear();
  for (const key of update.gone) locks.delete(key);
  for (const lock of update.locks) locks.set(lock.key, lock);
  head(update);
  state(update.trouble ? "down" : "live", update.trouble ? "Last look failed" : "Live");
  notices(update);
  const text = JSON.stringify(update.problems);
  if (text !== lastProblems) problems(update.problems);
  lastProblems = text;
  const last = update.contention.at(-1);
  $("held").textContent = number(last?.held ?? 0);
  $("waiting").textContent = number(last?.waiting ?? 0);
  $("listening").textContent = number(last?.listening ?? 0);
  $("peak").textContent = number(spark($("contention"), update.contention.map((it) => [it.at, it.waiting])));
  $("own-count").textContent = ownCount(update.own);
  showOwnLines(update.own);
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

// The open stream of events; `null` while the tab is hidden, and between two attempts.
let events = null;
let attempt = 0;
const PAUSED = "Paused while nobody sees it";

function listen() {
  clearTimeout(attempt);
  events?.close();
  events = null;
  // A browser has few connections for all tabs of a host, and the server looks only for people who watch.
  if (document.hidden || paused !== null) {
    heard = 0;
    state("", paused !== null ? "Paused" : PAUSED);
    return;
  }
  if ($("state").textContent.startsWith("Paused")) state("", "Connecting ..");
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
  try {
    const { ok, content } = await ask("api/locks");
    if (events !== null || document.hidden || paused !== null) return;
    // Too many streams are open: the page goes on without one.
    if (ok) hear(content);
    else state("down", content.error ?? "The console refuses to answer");
  } catch (error) {
    if (events === null && !document.hidden && paused === null) state("down", error.message);
  }
}

function pause() {
  paused = paused === null ? Date.now() + ahead : null;
  $("pause").textContent = paused === null ? "Pause" : "Go on";
  listen();
}

function start() {
  let typed = 0;
  $("search").addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => { page = 0; showList(); }, 60);
  });
  for (const id of ["sort", "kind", "prefix", "client"]) {
    $(id).addEventListener("change", () => { page = 0; showList(); });
  }
  $("pause").addEventListener("click", pause);
  $("whole").addEventListener("click", () => { isWhole = true; showName(); });
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
