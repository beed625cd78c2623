// Live page: totals and events arrive by Server-Sent Events; the board is requested as by any user.

const $ = (id) => document.getElementById(id);
const MINUTE_MS = 60_000;
const FEED_LINES = 60;
const newYork = (text, options) => new Date(text).toLocaleString("en-GB", { timeZone: "America/New_York", ...options });
const count = new Intl.NumberFormat("en").format;
const share = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} % of its requests` : "not asked yet");
const withoutHost = (key) => key.replace(/^https?:\/\/[^/]+/, "");
const ms = (value) => (value === undefined || value === null ? "–" : `${value} ms`);

const history = [];

function show(id, text) {
  const element = $(id);
  if (element.textContent !== text) element.textContent = text;
}

function showTotals(now) {
  const front = now.varnish;
  // Requests that Varnish could not answer went to the app: each reader's request is counted once.
  const requests = now.app.requests + (front?.hits ?? 0);
  history.push({ at: now.at_ms, requests, varnish: front?.hits ?? 0, app: now.app.hits,
    handler: now.app.misses + now.app.bypassed, writes: now.writes,
    evict: now.invalidations.exact + now.invalidations.widened });
  while (now.at_ms - history[0].at > MINUTE_MS) history.shift();

  show("requests", count(requests));
  show("request-rate", rate("requests").toFixed(0));
  show("write-rate", rate("writes").toFixed(1));
  if (front) {
    show("varnish-hits", count(front.hits));
    show("varnish-share", share(front.hits, front.requests));
  }
  show("app-hits", count(now.app.hits));
  show("app-share", share(now.app.hits, now.app.requests));
  show("misses", count(now.app.misses + now.app.bypassed));
  const reasons = Object.entries(now.uncacheable).map(([reason, times]) => `${reason} ${times}`);
  show("uncacheable", reasons.length ? `not cached: ${reasons.join(", ")}` : "every answer cacheable");
  show("writes", count(now.writes));
  show("exact", count(now.invalidations.exact));
  show("widened", count(now.invalidations.widened));
  show("invalidations", count(now.invalidations.exact + now.invalidations.widened));
  show("evicted-p50", ms(now.evicted_ms?.p50));
  show("evicted-p99", ms(now.evicted_ms?.p99));
  show("purged-p50", ms(now.purged_ms?.p50));
  show("purged-p99", ms(now.purged_ms?.p99));
  if (now.clock) show("clock", newYork(now.clock, { dateStyle: "long", timeStyle: "short" }));
  const state = now.workers === 0 ? "no app worker" : now.serving ? "serving" : "bypassing";
  $("state").className = `state ${state}`;
  show("state", now.workers ? `${state}, ${now.workers === 1 ? "1 worker" : `${now.workers} workers`}, ${count(now.registrations)} registrations` : state);
}

/** Per second, over the last five seconds. */
function rate(what) {
  const last = history.at(-1);
  const first = history.find((point) => last.at - point.at <= 5_000);
  return last.at > first.at ? Math.max(0, (1000 * (last[what] - first[what])) / (last.at - first.at)) : 0;
}

function showEvents(events) {
  const feed = $("feed");
  for (const event of events.slice(-FEED_LINES)) {
    const line = document.createElement("li");
    line.className = event.kind;
    if (event.kind === "evict") {
      const latency = document.createElement("b");
      latency.textContent = event.purged_ms === null ? ms(event.evicted_ms) : `${ms(event.evicted_ms)}, Varnish ${ms(event.purged_ms)}`;
      line.append(latency, `evicted${event.exact ? "" : " (widened)"} ${event.keys.map(withoutHost).join(", ")}`);
      line.title = event.keys.join("\n");
    } else {
      line.textContent = event.text;
    }
    feed.prepend(line);
  }
  while (feed.childElementCount > FEED_LINES) feed.lastElementChild.remove();
}

function draw() {
  const canvas = $("chart");
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const style = getComputedStyle(document.documentElement);
  const end = history.at(-1)?.at ?? 0;
  const lines = ["varnish", "app", "handler", "evict"].map((what) => ({ what, points: perSecond(what, end) }));
  const highest = Math.max(5, ...lines.flatMap((line) => line.points.map((point) => point.value)));
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = style.getPropertyValue("--soft");
  pen.strokeStyle = style.getPropertyValue("--line");
  for (const level of [0, 0.5, 1]) {
    const y = height - 8 - level * (height - 24);
    pen.beginPath();
    pen.moveTo(0, y);
    pen.lineTo(width, y);
    pen.stroke();
    pen.fillText(Math.round(level * highest).toString(), 2, y - 3);
  }
  pen.lineWidth = 2;
  pen.lineJoin = "round";
  for (const { what, points } of lines) {
    pen.strokeStyle = style.getPropertyValue(`--${what}`);
    pen.beginPath();
    for (const { at, value } of points) {
      pen.lineTo(width * (1 - (end - at) / MINUTE_MS), height - 8 - (value / highest) * (height - 24));
    }
    pen.stroke();
  }
}

function perSecond(what, end) {
  const points = [];
  let from = history[0];
  for (const point of history) {
    if (point.at - from.at >= 1_000) {
      points.push({ at: point.at, value: Math.max(0, (1000 * (point[what] - from[what])) / (point.at - from.at)) });
      from = point;
    }
  }
  return points.filter((point) => end - point.at <= MINUTE_MS);
}

let origin = "JFK";
let known = null;

async function askForBoard() {
  const asked = origin;
  try {
    const answer = await fetch(`/board/${asked}`);
    const board = await answer.json();
    if (asked !== origin) return;
    if (!answer.ok) throw new Error(board.error);
    const by = { varnish: "Varnish", app: "the app's cache", handler: "the handler" }[board.served_from];
    show("answered", `answered by ${by} in ${board.took_ms.toFixed(1)} ms`);
    showBoard(board.flights);
  } catch (error) {
    show("answered", `no answer: ${error.message}`);
  }
}

function showBoard(flights) {
  const now = new Map(flights.map((flight) => [flight._id, JSON.stringify(flight)]));
  const rows = flights.map((flight) => {
    const row = document.createElement("tr");
    if (known && known.get(flight._id) !== now.get(flight._id)) row.className = "new";
    const status = flight.status === "delayed" && flight.expected
      ? `delayed, ${newYork(flight.expected, { timeStyle: "short" })}` : flight.status;
    for (const text of [newYork(flight.scheduled, { timeStyle: "short" }), `${flight.carrier} ${flight.flight}`, flight.dest, status]) {
      row.append(Object.assign(document.createElement("td"), { textContent: text }));
    }
    row.lastElementChild.className = flight.status;
    return row;
  });
  if (!known || now.size !== known.size || [...now].some(([id, text]) => known.get(id) !== text)) {
    $("flights").replaceChildren(...rows);
  }
  known = now;
}

$("origins").addEventListener("click", (click) => {
  const chosen = click.target.dataset?.origin;
  if (!chosen) return;
  origin = chosen;
  known = null;
  for (const button of $("origins").children) button.setAttribute("aria-pressed", String(button.dataset.origin === chosen));
  askForBoard();
});

/** What a page at the front, loaded in a frame, says of its load: milliseconds, and how many of its answers were asked of the server. */
function visit(query) {
  return new Promise((done) => {
    const frame = Object.assign(document.createElement("iframe"), { hidden: true });
    const heard = ({ source, data }) => {
      if (source !== frame.contentWindow) return;
      removeEventListener("message", heard);
      frame.remove();
      done(`${data.ms.toFixed(0)} ms, ${data.asked} of ${data.of} asked of the server`);
    };
    addEventListener("message", heard);
    frame.src = `${document.querySelector("meta[name=front]").content}/visit${query}`;
    document.body.append(frame);
  });
}

async function compareVisits() {
  $("visit").disabled = true;
  show("from-nothing", await visit("?nothing"));
  await visit("");  // fills the browser's cache
  show("from-browser", await visit(""));
  $("visit").disabled = false;
}

$("visit").addEventListener("click", compareVisits);
compareVisits();

const events = new EventSource("/events");
events.onmessage = (message) => {
  const now = JSON.parse(message.data);
  showTotals(now);
  showEvents(now.events);
  draw();
};
events.onerror = () => {
  $("state").className = "state";
  show("state", "the demo has stopped");
};
askForBoard();
setInterval(askForBoard, 1_000);
