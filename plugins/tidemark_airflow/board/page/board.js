"use strict";
// Whatever comes from the server becomes text (textContent), never markup.

const REFRESH_MS = 30000;
const CHART_DAYS = 7;
const DRAWN_SHARDS = 16;
const SHOWN_QUEUES = 6;
const WORDS = {
  ready: ["ready", ""],
  revised: ["revised: late lines made a new revision", "2"],
  empty: ["ready and empty", "–"],
  gap: ["gap: lines may be lost", "×"],
  late: ["late, but in time", "…"],
  blocked: ["blocked: should be ready", "!"],
  open: ["open: not over", "·"],
  expired: ["expired: removed by retention", "◦"],
  before: ["before the stream's start", ""],
};
const $ = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.map((child) => (child instanceof Node ? child : String(child ?? ""))));
  return node;
}

// ---- the state, in the address: the hash of this page, and of the Airflow page around it

const around = (() => {
  try {
    return window.parent !== window && window.parent.location.origin === location.origin ? window.parent : null;
  } catch {
    return null;
  }
})();

function readState() {
  const values = new URLSearchParams(location.hash.slice(1));
  const days = [...$("days").options].map((option) => option.value);
  return {
    stream: values.get("stream") || "",
    hour: values.get("hour") || "",
    days: days.includes(values.get("days")) ? values.get("days") : "60",
  };
}

function writeState(change) {
  const next = { ...state, ...change };
  const values = new URLSearchParams();
  if (next.stream) values.set("stream", next.stream);
  if (next.stream && next.hour) values.set("hour", next.hour);
  if (next.days !== "60") values.set("days", next.days);
  if (String(values) !== location.hash.slice(1)) location.hash = values;
  else follow();
}

function mirrorState() {
  if (!around) return;
  // With the path: the page around has a <base>, which a lone hash would be taken relative to.
  const { pathname, search } = around.location;
  around.history.replaceState(around.history.state, "", `${pathname}${search}${location.hash}`);
}

function followAround() {
  if (around.location.hash !== location.hash) location.hash = around.location.hash;
}

// ---- asking the server

async function ask(path) {
  const answer = await fetch(path, { credentials: "same-origin", headers: { Accept: "application/json" } });
  if (answer.ok) return answer.json();
  const body = await answer.json().catch(() => ({}));
  const said = typeof body.detail === "string" ? body.detail : answer.statusText;
  if (answer.status === 401) throw new Error("You are not logged in, or your login is over: reload Airflow.");
  if (answer.status === 403) throw new Error("You may not see this stream: it needs the right to its DAG.");
  throw new Error(said);
}

// Nothing when another stream was chosen meanwhile.
async function askOfStream(rest) {
  const { stream } = state;
  const answer = await ask(`api/streams/${encodeURIComponent(stream)}/${rest}`);
  return state.stream === stream ? answer : null;
}

// ---- a part of the page is made anew only when what it was made from changed: focus and a screen reader stay there

const madeFrom = new Map();

function renew(id, from, build) {
  const key = JSON.stringify(from);
  if (madeFrom.get(id) === key) return;
  madeFrom.set(id, key);
  const part = $(id);
  const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  part.replaceChildren(...build());
  if (focused) [...part.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
}

function clear(id) {
  madeFrom.delete(id);
  $(id).replaceChildren();
  delete $(id).dataset.shows;
}

// ---- words

const twoDigits = (number) => String(number).padStart(2, "0");
const time = (ms) => (ms == null ? "never" : new Date(ms).toISOString().slice(0, 16).replace("T", " "));
const number = (value) => (value == null ? "–" : value.toLocaleString("en"));

function duration(ms) {
  const minutes = Math.round(Math.max(0, ms) / 60000);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

function words(state, revision) {
  if (state === "gap") return revision ? `ready, revision ${revision}, with an accepted gap` : "held by a gap";
  if (state === "revised") return `ready, revised: revision ${revision}`;
  return WORDS[state][0];
}

const sign = (state, revision) => (state === "revised" ? String(revision) : WORDS[state][1]);

function table(headings, rows, numeric = []) {
  const cell = (tag) => (value, index) => make(tag, numeric.includes(index) ? { class: "number" } : {}, value);
  const head = make("thead", {}, make("tr", {}, ...headings.map(cell("th"))));
  const body = make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell("td")))));
  return make("div", { class: "scroll" }, make("table", { class: "list" }, head, body));
}

// ---- all streams

async function showAll() {
  const answer = await ask("api/streams?days=2");
  const worstFirst = [...answer.streams].sort((one, other) => other.held - one.held);
  const rows = worstFirst.map((row) => {
    const link = make("a", { href: `#${new URLSearchParams({ stream: row.stream })}` }, row.stream);
    const behind = row.watermark_ms == null ? "never planned" : duration(answer.now_ms - row.watermark_ms);
    const held = make("span", row.held ? { class: "wrong" } : { class: "quiet" }, row.held || "none");
    return [link, strip(row), row.newest_ready ?? "none", behind, held];
  });
  offer(answer.streams.map((row) => row.stream));
  renew("all", rows.map((row) => row.map((part) => part.outerHTML ?? part)), () => [
    make("h2", {}, "The last two days of each stream, those with hours that should be ready first, however old"),
    rows.length
      ? table(["stream", "hours (UTC), the oldest first", "newest ready", "consumed up to, ago", "should be ready, is not"], rows)
      : make("p", {}, "There is no stream whose DAG you may see."),
    legend(),
  ]);
}

function strip(row) {
  const hours = [...row.days].reverse().flatMap((day) =>
    day.states.map((state, hour) => ({ state, text: `${day.day} ${twoDigits(hour)}: ${words(state, day.revisions[hour])}` })));
  const counts = {};
  for (const { state } of hours) counts[state] = (counts[state] || 0) + 1;
  const label = Object.entries(counts).map(([state, count]) => `${count} ${state}`).join(", ");
  const cells = hours.map(({ state, text }) => make("span", { class: state, title: text }));
  return make("div", { class: "strip", role: "img", "aria-label": label }, ...cells);
}

function legend() {
  const items = Object.entries(WORDS).map(([state, [text, mark]]) =>
    make("li", {}, make("span", { class: state, "aria-hidden": "true" }, mark), text));
  return make("ul", { class: "legend", "aria-label": "What the colours and signs mean" }, ...items);
}

// ---- one stream: its calendar

const cells = new Map();

async function showCalendar() {
  const { days } = state;
  const answer = await askOfStream(`calendar?days=${days}`);
  if (!answer || state.days !== days) return;
  const behind = answer.watermark_ms == null
    ? "nothing was ever planned for it"
    : `everything is consumed up to ${time(answer.watermark_ms)} UTC, ${duration(answer.now_ms - answer.watermark_ms)} ago`;
  $("summary").textContent = `${answer.stream}, from topic ${answer.topic}, owned by ${answer.owner}: ${behind}; ` +
    `newest ready hour ${answer.newest_ready ?? "none"}; hours that should be ready and are not: ${answer.held || "none"}.`;
  const wanted = `${answer.stream} ${answer.days.map((day) => day.day).join(" ")}`;
  const focused = $("calendar").contains(document.activeElement) ? document.activeElement.dataset.hour : null;
  if ($("calendar").dataset.shows !== wanted) {
    cells.clear();
    $("calendar").replaceChildren(grid(answer), legend());
    $("calendar").dataset.shows = wanted;
    for (const cell of document.querySelectorAll("td[data-hour]")) cells.set(cell.dataset.hour, cell);
  }
  for (const day of answer.days) {
    day.states.forEach((found, hour) => paint(cells.get(`${day.day}T${twoDigits(hour)}`), found, day.revisions[hour]));
  }
  select();
  // A new day makes new rows.
  if (focused && !document.activeElement.dataset.hour) cells.get(focused)?.focus();
}

function grid(answer) {
  const hours = [...Array(24).keys()];
  const head = make("tr", { role: "row" }, make("th", { role: "columnheader", scope: "col", "aria-label": "day" }),
    ...hours.map((hour) => make("th", { role: "columnheader", scope: "col" }, twoDigits(hour))));
  const rows = answer.days.map((day, row) => make("tr", { role: "row" },
    make("th", { role: "rowheader", scope: "row" }, day.day),
    ...hours.map((hour) => make("td", {
      role: "gridcell", tabindex: "-1", "data-hour": `${day.day}T${twoDigits(hour)}`, "data-row": row, "data-column": hour,
    }))));
  const found = make("table", { class: "calendar", role: "grid", "aria-label": `Hours of ${answer.stream}, UTC` },
    make("thead", { role: "rowgroup" }, head), make("tbody", { role: "rowgroup" }, ...rows));
  found.addEventListener("click", (event) => choose(event.target.closest("td")));
  found.addEventListener("keydown", walk);
  found.addEventListener("focusin", (event) => moveTab(event.target.closest("td")));
  return found;
}

function paint(cell, found, revision) {
  const label = `${cell.dataset.hour.replace("T", " ")} UTC: ${words(found, revision)}`;
  if (cell.getAttribute("aria-label") === label) return;
  cell.className = found;
  cell.textContent = sign(found, revision);
  cell.setAttribute("aria-label", label);
  cell.setAttribute("title", label);
}

function walk(event) {
  const cell = event.target.closest("td");
  // Alt and an arrow are the browser's way back.
  if (!cell || event.altKey || event.metaKey) return;
  const [row, column] = [Number(cell.dataset.row), Number(cell.dataset.column)];
  const last = document.querySelectorAll("tr[role=row]").length - 2;
  const goals = {
    ArrowLeft: column ? [row, column - 1] : [row + 1, 23],
    ArrowRight: column < 23 ? [row, column + 1] : [row - 1, 0],
    ArrowUp: [row - 1, column],
    ArrowDown: [row + 1, column],
    Home: event.ctrlKey ? [0, 0] : [row, 0],
    End: event.ctrlKey ? [last, 23] : [row, 23],
    PageUp: [Math.max(0, row - 7), column],
    PageDown: [Math.min(last, row + 7), column],
  };
  if (event.key === "Enter" || event.key === " ") choose(cell);
  else if (event.key in goals) {
    const [toRow, toColumn] = goals[event.key];
    document.querySelector(`td[data-row="${toRow}"][data-column="${toColumn}"]`)?.focus();
  } else return;
  event.preventDefault();
}

function moveTab(cell) {
  if (!cell) return;
  for (const other of document.querySelectorAll('td[tabindex="0"]')) other.tabIndex = -1;
  cell.tabIndex = 0;
}

function choose(cell) {
  if (cell) writeState({ hour: cell.dataset.hour });
}

function select() {
  for (const cell of document.querySelectorAll('td[aria-selected="true"]')) cell.removeAttribute("aria-selected");
  const cell = cells.get(state.hour);
  cell?.setAttribute("aria-selected", "true");
  if (!document.querySelector('td[tabindex="0"]')) moveTab(cell ?? document.querySelector("td[data-hour]"));
}

// ---- one stream: an hour

async function showHour() {
  const { stream, hour } = state;
  if (!hour) {
    renew("detail", null, () => [make("h2", {}, "An hour"), make("p", { class: "quiet" },
      "Choose an hour to see why it is ready, or what holds it. Arrow keys walk, Enter chooses.")]);
    return;
  }
  const head = make("h2", {}, `${stream} ${hour}`);
  const isChosenNow = $("detail").dataset.shows !== hour;
  if (isChosenNow) renew("detail", hour, () => [head, make("p", { class: "quiet" }, "Asking…")]);
  const answer = await askOfStream(`hours/${encodeURIComponent(hour)}`).catch((error) => ({ problem: error.message }));
  if (!answer || state.stream !== stream || state.hour !== hour) return;
  renew("detail", answer, () => [head, ...(answer.problem ? [make("p", { class: "wrong" }, answer.problem)] : explained(answer))]);
  $("detail").dataset.shows = hour;
  // A screen reader is told what was chosen, and not each change of what is shown.
  if (isChosenNow) $("told").textContent = answer.problem ?? answer.text[0];
}

function explained(answer) {
  return [
    make("h3", {}, "What tidemark why says"),
    make("pre", {}, answer.text.join("\n")),
    make("h3", {}, "Runs and their logs"),
    ...runs(answer.runs),
    ...(answer.flag ? proof(answer.flag, answer.revisions) : []),
  ];
}

function runs(found) {
  if (!found.length) return [make("p", { class: "quiet" }, "Airflow has no run of this hour; a later one may have brought it.")];
  return found.map((run) => {
    const address = `../dags/${encodeURIComponent(run.dag)}/runs/${encodeURIComponent(run.run)}`;
    const tasks = run.tasks.map((task) => {
      const mapped = task.map_index < 0 ? ["", ""] : [`/mapped/${task.map_index}`, ` ${task.map_index}`];
      const log = outward(`${address}/tasks/${encodeURIComponent(task.task)}${mapped[0]}`, `log of ${task.task}${mapped[1]}`);
      return make("li", {}, log, `: ${task.state}, try ${task.try}`);
    });
    return make("div", {}, outward(address, run.run), `: ${run.state}`, make("ul", {}, ...tasks));
  });
}

function outward(address, text) {
  const link = make("a", { href: address, target: "_top" }, text);
  link.addEventListener("click", leave);
  return link;
}

// Airflow's frame may not leave for another page by itself; a link of the page around may.
// The same click, with its keys: a new tab stays a new tab.
function leave(event) {
  if (!around) return;
  event.preventDefault();
  const link = around.document.createElement("a");
  link.href = event.currentTarget.href;
  link.dispatchEvent(new around.MouseEvent(event.type, event));
}

function proof(flag, revisions) {
  const shards = Object.entries(flag.shards).map(([name, row]) =>
    [name, row.proof, row.watermark, number(row.lines), `${row.first_offset ?? "–"} … ${row.last_offset ?? "–"}`]);
  const files = flag.files.map((file) => [file.path, number(file.lines), number(file.bytes)]);
  const history = revisions.map((row) =>
    [row.revision, time(Date.parse(row.published)), number(row.lines), number(row.added), row.shifts.join(", ") || "none"]);
  return [
    make("h3", {}, `Revisions: ${flag.revision}`),
    table(["revision", "published (UTC)", "lines", "of these new", "from shifts"], history, [2, 3]),
    make("h3", {}, "Proof of each shard"),
    table(["shard", "proof", "watermark", "lines", "offsets"], shards, [3]),
    make("h3", {}, "Files"),
    files.length ? table(["file", "lines", "bytes"], files, [1, 2]) : make("p", { class: "quiet" }, "None: the hour is empty."),
  ];
}

// ---- one stream: charts, shards, timelines

async function showCharts() {
  const found = await askOfStream(`flags?days=${CHART_DAYS}`);
  if (!found) return;
  renew("charts", found, () => found.length ? [
    chart(found, (row) => row.lines, "Lines an hour", number, "lines"),
    chart(found, (row) => row.delay_ms, "Lag, from an hour's end to its first flag", duration, "delay"),
    inNumbers(found),
  ] : [make("p", { class: "quiet" }, `No hour of the last ${CHART_DAYS} days has a flag: there is nothing to draw.`)]);
}

// What the bars say: for who cannot point at them.
function inNumbers(found) {
  const rows = [...found].reverse().map((row) => [row.hour, number(row.lines), number(row.late), duration(row.delay_ms)]);
  const details = make("details", {}, make("summary", {}, "In numbers"),
    table(["hour (UTC)", "lines", "of these late", "lag of its first flag"], rows, [1, 2, 3]));
  details.open = Boolean($("charts").querySelector("details")?.open);
  return details;
}

function chart(rows, value, title, format, kind) {
  const start = Date.parse(`${rows[0].hour}:00:00Z`);
  const places = rows.map((row) => (Date.parse(`${row.hour}:00:00Z`) - start) / 3600000);
  const width = Math.max(24, places.at(-1) + 1);
  const values = rows.map(value);
  const highest = Math.max(1, ...values);
  const text = `${title}, the last ${CHART_DAYS} days: highest ${format(Math.max(...values))}, newest ${format(values.at(-1))}`;
  const bars = rows.map((row, index) => {
    const height = Math.max(1, (94 * Math.max(0, values[index])) / highest);
    return draw("rect", { x: places[index] * 10 + 1, y: 100 - height, width: 8, height },
      draw("title", {}, `${row.hour}: ${format(values[index])}`));
  });
  const attributes = { viewBox: `0 0 ${width * 10} 100`, preserveAspectRatio: "none", role: "img", "aria-label": text, class: kind };
  return make("figure", {}, make("figcaption", {}, text), draw("svg", attributes, ...bars));
}

function draw(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

async function showTimelines() {
  const found = await askOfStream("timelines");
  if (found) renew("timelines", found, () => [make("h2", {}, "Timelines"), ...timelines(found)]);
}

async function showShards() {
  const answer = await askOfStream("offsets");
  if (!answer) return;
  const rows = answer.shards.map((row) => [row.shard, number(row.next), number(row.end), number(row.lag),
    row.completed ? "completed" : time(row.watermark_ms)]);
  renew("shards", answer, () => [
    make("h2", {}, `Shards: ${number(answer.lag)} records behind Kafka; ${answer.open ? `shift ${answer.open}` : "no shift"} is open`),
    table(["shard", "next", "Kafka's end", "lag", "watermark (UTC)"], rows, [1, 2, 3]),
  ]);
}

// Timelines side by side, the shards of each below one another, lines from parents to children.
function timelines(found) {
  const [wide, high, gap, top] = [250, 22, 90, 62];
  const places = new Map();
  const columns = found.map((row, column) => {
    const x = column * (wide + gap);
    row.shards.slice(0, DRAWN_SHARDS).forEach((shard, place) => places.set(shard.shard, [x, top + place * (high + 6)]));
    return { row, x, more: Math.max(0, row.shards.length - DRAWN_SHARDS) };
  });
  const tall = Math.max(top, ...[...places.values()].map(([, y]) => y + high)) + 24;
  const drawn = found.flatMap((row) => row.shards).filter((shard) => places.has(shard.shard));
  const edges = drawn.flatMap((shard) => shard.parents.filter((parent) => places.has(parent)).map((parent) => {
    const [[x, y], [toX, toY]] = [places.get(parent), places.get(shard.shard)];
    return draw("path", { d: `M${x + wide} ${y + high / 2} C${x + wide + gap / 2} ${y + high / 2} ${toX - gap / 2} ${toY + high / 2} ${toX} ${toY + high / 2}` });
  }));
  const boxes = drawn.flatMap((shard) => {
    const [x, y] = places.get(shard.shard);
    return [draw("rect", { x, y, width: wide, height: high, rx: 4, class: shard.completed ? "completed" : "" }),
      draw("text", { x: x + 8, y: y + 15 }, `${shard.shard}: next ${number(shard.next)}${progress(shard)}`)];
  });
  const heads = columns.flatMap(({ row, x, more }) => [
    draw("text", { x, y: 16, class: "head" }, `${row.order}: ${row.cluster}`),
    draw("text", { x, y: 33 }, row.topic.length > 34 ? `${row.topic.slice(0, 33)}…` : row.topic),
    draw("text", { x, y: 50, class: "quiet" }, `since ${time(row.switched_ms)}, ${row.state}`),
    ...(more ? [draw("text", { x, y: tall - 6, class: "quiet" }, `and ${number(more)} shards more`)] : []),
  ]);
  const told = found.map((row) => `${row.order}: ${row.cluster}/${row.topic}, since ${time(row.switched_ms)}, ` +
    `${row.shards.length} shards, ${row.state}`).join("; then ");
  const width = columns.length * (wide + gap) - gap;
  const attributes = { viewBox: `0 0 ${width} ${tall}`, width, height: tall, role: "img", "aria-label": `Timelines: ${told}`, class: "graph" };
  return [make("div", { class: "scroll" }, draw("svg", attributes, ...edges, ...boxes, ...heads))];
}

function progress(shard) {
  if (shard.completed) return ", completed";
  return shard.end == null ? "" : ` of ${number(shard.end)}`;
}

function few(queues) {
  const more = queues.length - SHOWN_QUEUES;
  return [...queues.slice(0, SHOWN_QUEUES), ...(more > 0 ? [`and ${more} more`] : [])].join(", ");
}

async function showWorkers() {
  const answer = await ask("api/workers");
  const leases = answer.leases.filter((row) => !state.stream || row.stream === state.stream).map((row) =>
    [row.stream, row.held ? row.owner : "free", row.held ? `${row.task}, try ${row.try}` : "", row.epoch, time(row.renewed_ms)]);
  const found = answer.workers.map((row) => [row.name, `${row.task}, try ${row.try}`, few(row.queues), time(row.since_ms)]);
  renew("workers", [found, leases], () => [
    make("h2", {}, "Workers"),
    found.length ? table(["worker", "task", "queues", "since (UTC)"], found) : make("p", { class: "quiet" }, "No worker lives: nothing runs now."),
    make("h2", {}, "Leases"),
    leases.length ? table(["stream", "held by", "for", "epoch", "renewed (UTC)"], leases, [3]) : make("p", { class: "quiet" }, "No stream has a lease yet."),
  ]);
}

// ---- the whole

let state = { stream: "", hour: "", days: "60" };
let rounds = 0;

async function refresh() {
  const round = ++rounds;
  const steps = state.stream ? [showCalendar, showHour, showCharts, showTimelines, showShards, showWorkers] : [showAll, showWorkers];
  const results = await Promise.allSettled(steps.map((step) => step()));
  if (round !== rounds) return;
  const problems = [...new Set(results.filter((result) => result.status === "rejected").map((result) => result.reason.message))];
  $("problem").textContent = problems.join("\n");
  $("problem").hidden = !problems.length;
  if (!problems.length) $("updated").textContent = `as of ${new Date().toISOString().slice(11, 19)} UTC`;
  document.documentElement.dataset.loaded = String(round);
}

async function listStreams() {
  const answer = await ask("api/streams?days=1").catch(() => ({ streams: [] }));
  offer(answer.streams.map((row) => row.stream));
}

function offer(names) {
  renew("stream", names, () => [make("option", { value: "" }, "All streams"), ...names.map((name) => make("option", { value: name }, name))]);
  $("stream").value = state.stream;
}

function follow() {
  const before = state;
  state = readState();
  mirrorState();
  $("all").hidden = Boolean(state.stream);
  for (const id of ["one", "days", "days-label"]) $(id).hidden = !state.stream;
  $("stream").value = state.stream;
  $("days").value = state.days;
  if (before.stream !== state.stream) {
    for (const id of ["charts", "calendar", "detail", "timelines", "shards"]) clear(id);
    $("summary").textContent = "";
  }
  if (before.stream === state.stream && before.days === state.days && state.stream) {
    select();
    showHour();
  } else refresh();
}

function takeTheme() {
  const root = around.document.documentElement;
  const dark = root.classList.contains("dark") || root.dataset.theme === "dark";
  const light = root.classList.contains("light") || root.dataset.theme === "light";
  if (dark || light) document.documentElement.dataset.theme = dark ? "dark" : "light";
}

if (around) {
  const switched = new MutationObserver(takeTheme);
  switched.observe(around.document.documentElement, { attributeFilter: ["class", "data-theme"] });
  around.addEventListener("hashchange", followAround);
  // The page around outlives this one.
  window.addEventListener("pagehide", () => {
    switched.disconnect();
    around.removeEventListener("hashchange", followAround);
  });
  takeTheme();
}
$("stream").addEventListener("change", () => writeState({ stream: $("stream").value, hour: "" }));
$("days").addEventListener("change", () => writeState({ days: $("days").value }));
window.addEventListener("hashchange", follow);
setInterval(() => document.hidden || refresh(), REFRESH_MS);
if (!location.hash && around?.location.hash) history.replaceState(null, "", around.location.hash);
state = { stream: null, hour: "", days: "" };
listStreams().then(follow);
