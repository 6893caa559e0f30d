"use strict";

// Texts of names, numbers and times. Texts of locks reach the page by `textContent` alone.

const SPAN = 5 * 60 * 1000;
const LATE = 3000;

const $ = (id) => document.getElementById(id);

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

// A time of day, for those who compare it with a log.
function moment(at) {
  const options = { dateStyle: "medium", timeStyle: "long" };
  return new Date(at).toLocaleString(undefined, options);
}

// A long name without its middle. The whole is in its title, and on the page of the key.
const MOST_SHOWN = 90;

function cutName(shown, most = MOST_SHOWN) {
  const letters = [...shown];
  if (letters.length <= most) return shown;
  const end = Math.floor(most / 3);
  return `${letters.slice(0, most - end).join("")} … ${letters.slice(-end).join("")}`;
}

// `shown` is the key as people can see it: without line breaks, blanks at its ends and other tricks.
function keyLink(key, shown) {
  const link = element("a", "key", cutName(shown));
  link.href = keyAddress(key);
  if (link.textContent !== shown) link.title = shown;
  return link;
}

// `location.hash` is relative to the base of the page, a link with `#` alone as well: the whole address stays on this page.
const keyAddress = (key) => `${location.pathname}${location.search}#key=${encodeURIComponent(key)}`;


// What changes with the time alone: [when it ends or began, how to show it].
let clocks = [];

function clock(node, show) {
  clocks.push([node, show]);
  show(node);
}

function cell(label, className) {
  const made = element("td", className);
  made.dataset.label = label;
  return made;
}

function owner(holder) {
  const content = element("span");
  if (holder.client) {
    content.append(element("span", "name", cutName(holder.client.name, 60)));
    content.title = `${holder.client.name}, ${holder.owner} at ${holder.client.address}`;
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
  const { since, is_since_exact: isExact } = holder;
  const content = element("span");
  clock(content, (node) => {
    const text = duration(serverNow() - since);
    node.textContent = isExact ? text : `over ${text}`;
  });
  content.title = `${isExact ? "since" : "seen first at"} ${moment(since)}`;
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
  content.title = `until ${moment(holder.lease_ends)}, unless it is renewed`;
  clock(content, (node) => {
    const left = Math.max(0, holder.lease_ends - serverNow());
    text.textContent = left > 0 ? duration(left) : "over";
    rest.style.transform = `scaleX(${Math.min(1, left / Math.max(1, holder.lease_millis))})`;
    node.className = left < LATE ? "late" : "";
  });
  return content;
}
