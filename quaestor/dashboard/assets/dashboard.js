// The page: requests once a second the state that all viewers share, and shows it. Tuning is in tuning.js.

import { chart } from "./charts.js";
import { keepChannels } from "./channels.js";
import { keepContinuous } from "./continuous.js";
import { showLive } from "./live.js";
import { explained, startRoutes } from "./routes.js";
import { call, forget, known, Problem, remember } from "./server.js";
import { $, choices, count, element, number, pairs, rows, share, show, time } from "./words.js";
import { findings, hitRate, THRESHOLDS } from "./status.js";
import { startTuning } from "./tuning.js";

const EVERY_MS = 1000;
const SECONDS = 300;
const rate = (value) => number(value);
const power = (value) => time(10 ** value);
let points = [];
let columns = [];
let charts = null;
let tuning = null;
let showRoutes = null;
let goneSince = null;
let showing = "";
let latest = null;

function makeCharts() {
	return {
		answers: chart($("chart-answers"), { series: ["memory", "Redis", "assembled", "handler", "bypass"], words: rate }),
		invalidations: chart($("chart-invalidations"), { series: ["exact", "widened"], words: rate }),
		lag: chart($("chart-lag"), { series: ["lag of the grid", "oldest purge"], words: time }),
		sketch: chart($("chart-sketch"), { series: ["bits set", "false positives"], words: (value) => `${number(value)}` }),
		deliveries: chart($("chart-deliveries"), { series: ["followed answers", "live queries", "HTTP answers of live queries"], words: rate }),
		liveLag: chart($("chart-live-lag"), { series: ["lag of the slowest result"], words: time }),
		calibration: chart($("chart-calibration"), { series: ["changed in time", "quantile asked for"], words: share, x: power, dots: ["changed in time"] }),
		survival: chart($("chart-survival"), { series: ["results alive", "lifetimes given longer"], words: share, x: power, kind: "step" }),
		errors: chart($("chart-errors"), { series: ["share of errors"], words: share, x: (value) => `${number(10 ** value)}×`, kind: "step" }),
	};
}

const column = (name) => points.map((point) => point[columns.indexOf(name)]);
const added = (...names) => points.map((point) => names.reduce((sum, name) => sum + point[columns.indexOf(name)], 0));
const sum = (labels, wanted = () => true) => Object.entries(labels).reduce((all, [label, value]) => (wanted(label) ? all + value : all), 0);
const part = (some, all) => (all ? share(some / all) : "–");
const sorted = (labels, most = 8) => Object.entries(labels).filter(([, value]) => value).sort((a, b) => b[1] - a[1]).slice(0, most);

/** The state before any numbers: one line, and what needs attention. */
function showHealth(now) {
	const found = findings(now);
	const worst = found[0]?.level ?? "good";
	const verdict = { good: "All is well: nothing is beyond its threshold.", warn: "Serving, but look at this:", bad: "This needs attention now:" }[worst];
	show($("verdict"), verdict);
	$("verdict").className = worst;
	const text = JSON.stringify(found);
	if ($("findings").dataset.text === text) return;
	$("findings").dataset.text = text;
	$("findings").replaceChildren(...found.map((one) => element("li", one.text, { className: one.level })));
}

function showFigures(now) {
	const spans = [now.windows["60"], now.windows["300"], now.windows["3600"], now.sums];
	const rates = spans.map(hitRate);
	const fell = rates[1].asked >= THRESHOLDS.least_requests && rates[1].rate < THRESHOLDS.fell * rates[2].rate;
	const line = (name, values, threshold) => [name, ...values, threshold];
	const some = (value, level) => (level ? { text: value, level } : value);
	rows($("figures"), ["figure", "#last minute", "#5 minutes", "#60 minutes", "#since the start", "threshold"], [
		line("hit rate", rates.map(({ rate }, i) => some(rate === null ? "–" : share(rate), i === 1 && fell ? "warn" : "")), `5 minutes at least ${share(THRESHOLDS.fell)} of 60 minutes`),
		line("requests", rates.map(({ asked }) => count(asked)), "–"),
		line("out of memory", spans.map(({ requests, hits }) => part(hits.memory ?? 0, sum(requests))), "–"),
		line("out of Redis", spans.map(({ requests, hits }) => part(hits.redis ?? 0, sum(requests))), "–"),
		line("put together", spans.map(({ requests, hits }) => part(hits.assembled ?? 0, sum(requests))), "–"),
		line("shared a handler’s run", spans.map(({ requests }) => part(requests.coalesced ?? 0, sum(requests))), "–"),
		line("by handlers", spans.map(({ requests }) => part(requests.miss ?? 0, sum(requests))), "–"),
		line("past the cache", spans.map(({ requests }) => part(requests.bypass ?? 0, sum(requests))), "–"),
		line("invalidated", spans.map(({ invalidations }) => count(sum(invalidations))), "–"),
		line("of them exact", spans.map(({ invalidations }) => part(sum(invalidations, (label) => label.endsWith(",exact")), sum(invalidations))), "–"),
		line("write to evicted, 99 %", [...spans.slice(0, 3).map(({ evicted_ms }) => evicted_ms), now.evicted_ms].map(({ p99 }, i) => some(p99 === null ? "–" : `≤ ${time(p99)}`, i === 1 && p99 > THRESHOLDS.evicted_p99_ms ? "warn" : "")), `5 minutes at most ${time(THRESHOLDS.evicted_p99_ms)}`),
		line("stale of those verified", spans.map(({ verifications }) => some(part(verifications.diverged ?? 0, sum(verifications)), verifications.diverged ? "bad" : "")), "none"),
		line("failures", spans.map(({ failures }) => some(count(sum(failures)), sum(failures) ? "warn" : "")), "none in 5 minutes"),
	]);
}

function showAnswers(now) {
	const at = column("at_ms").map((ms) => ms / 1000);
	const answers = [column("memory"), column("redis"), column("assembled"), column("miss"), column("bypass")];
	const newest = answers.map((values) => values.at(-1) ?? 0);
	charts.answers.draw([at, ...answers], `Answers a second now: memory ${rate(newest[0])}, Redis ${rate(newest[1])}, handlers ${rate(newest[3])}, past the cache ${rate(newest[4])}`);
	const reasons = (metric, miss) => sorted(now.sums[metric]).map(([reason, times]) => [{ text: reason, href: explained(reason, miss) }, count(now.windows["300"][metric][reason] ?? 0), count(times)]);
	rows($("misses"), ["reason", "#5 minutes", "#since the start"], reasons("misses", true));
	rows($("uncacheable"), ["reason", "#5 minutes", "#since the start"], reasons("uncacheable", false));
	rows($("processes"), ["process", "#entries", "#MB", "serves"], now.processes.map((one) => [one.process, count(one.entries), number(one.bytes / 1e6), one.serving ? "yes" : "no"]));
}

function showInvalidation(now) {
	const { invalidations, reexecuted, verifications } = now.sums;
	const exact = sum(invalidations, (label) => label.endsWith(",exact"));
	const same = sum(reexecuted, (label) => label.endsWith(",same"));
	const checked = sum(verifications);
	pairs($("invalidation-tiles"), [
		["Registrations live", count(sum(now.sums.registrations))],
		["Invalidated", count(sum(invalidations))],
		["of them exact", part(exact, sum(invalidations))],
		["for nothing", part(same, sum(reexecuted))],
		["Write to evicted, median", now.evicted_ms.p50 === null ? "–" : `≤ ${time(now.evicted_ms.p50)}`],
		["99th percentile", now.evicted_ms.p99 === null ? "–" : `≤ ${time(now.evicted_ms.p99)}`],
		["Stale of those verified", part(verifications.diverged ?? 0, checked)],
		["Lag of the grid", time(1000 * (now.highest.grid_lag_seconds.all ?? 0))],
	]);
	const at = column("at_ms").map((ms) => ms / 1000);
	const last = points.at(-1) ?? [];
	const value = (name) => last[columns.indexOf(name)] ?? 0;
	charts.invalidations.draw([at, column("exact"), column("widened")], `Invalidated a second now: exact ${rate(value("exact"))}, widened ${rate(value("widened"))}`);
	const purges = now.cdn ? `, oldest purge ${time(1000 * value("purges_oldest_s"))}` : "";
	charts.lag.omit(1, !now.cdn);
	charts.lag.draw([at, column("lag_ms"), column("purges_oldest_s").map((s) => (now.cdn ? 1000 * s : null))], `Lag of the grid ${time(value("lag_ms"))}${purges}`);
	charts.sketch.draw([at, column("fill").map((one) => 100 * one), column("false_positives").map((one) => 100 * one)], `Bits set ${share(value("fill"))}, false positives ${share(value("false_positives"))}`);
	rows($("matches"), ["match type", "precision", "#times"], sorted(invalidations, 12).map(([label, times]) => [...label.split(","), count(times)]));
	const queued = now.highest.purges_queued;
	const cdns = [...new Set(Object.keys(queued).map((label) => label.split(",")[0]))].sort();
	rows($("purges"), ["CDN", "#waiting", "#on the way", "#dead", "state"], cdns.map((cdn) => [
		cdn, ...["waiting", "taken", "dead"].map((state) => count(queued[`${cdn},${state}`] ?? 0)),
		["ok", "throttled", "dark"].find((state) => now.highest.cdn_state[`${cdn},${state}`]) ?? "–",
	]));
	rows($("verified"), ["verdict", "#answers"], sorted(verifications).map(([verdict, times]) => [verdict, count(times)]));
}

function showLifetimes(now) {
	choices($("kind"), now.lifetimes.map((one) => [one.kind, one.kind || "all"]));
	const one = now.lifetimes.find(({ kind }) => kind === $("kind").value) ?? now.lifetimes[0];
	const quantile = tuning.quantileOf(one.kind);
	const [judged, changed, factor] = one.learned;
	const learned = judged === undefined ? "" : `; its estimator has judged ${count(judged)}, of which ${part(changed, judged)} changed, and stands at ${number(factor)} times the model's answer`;
	show($("kind-facts"), `${count(one.sampled)} lifetimes in the sample, ${count(one.judged)} known: ${share(one.changed)} changed before their end, ${quantile === null ? "no quantile is asked for" : `${share(quantile)} is asked for`}${learned}`);
	const log = (list) => list.map(([value]) => Math.log10(Math.max(value, 1e-3)));
	const calibrated = one.calibration;
	charts.calibration.draw(
		[log(calibrated), calibrated.map(([, value]) => value), calibrated.map(() => quantile)],
		`Calibration: ${calibrated.map(([given, value]) => `${time(given)} ${share(value)}`).join(", ") || "nothing yet"}`,
	);
	const both = uPlot.join([[log(one.survival), one.survival.map(([, alive]) => alive)], [log(one.given), one.given.map(([, longer]) => longer)]]);
	const median = one.survival.find(([, alive]) => alive <= 0.5);
	charts.survival.draw(both.length === 3 ? both : [[], [], []], median ? `Half of the results have changed after ${time(median[0])}` : "Fewer than half of the results have changed so far");
	charts.errors.draw([log(one.errors), one.errors.map(([, value]) => value)], `Of the lifetimes seen to end, ${share(one.errors.filter(([ratio]) => ratio > 1).length / Math.max(1, one.errors.length))} of the points were too long`);
}

const WHY = {
	estimator: ["estimator", String], ttl_ms: ["lifetime now", time], quantile: ["quantile", share], means: ["mean lifetimes in it", number],
	rate_hz: ["changes a second", number], write_rate_hz: ["writes to members a second", number], unexplained_hz: ["records entering a second", number],
	mean_ms: ["mean lifetime observed", time], lifetimes: ["lifetimes observed", count], quiet_ms: ["unchanged for", time],
	factor: ["learned factor", number], budget_factor: ["factor of the budgets", number], alpha: ["weight of the past", number],
	queries: ["queries", count], known: ["of them with a history", count], ttl_min_ms: ["lower bound", time], ttl_max_ms: ["upper bound", time],
};

function showHeaviest(now) {
	const list = $("results");
	const items = new Map([...list.children].map((item) => [item.dataset.key, item]));
	const wanted = now.heaviest.map((one) => {
		const item = items.get(one.key) ?? element("li", null, {}, element("details", null, {}, element("summary", null, {}, element("code", one.key), element("span", "")), element("p", ""), element("dl", null)));
		item.dataset.key = one.key;
		const [summary, depends, why] = item.firstElementChild.children;
		show(summary.lastElementChild, ` ${time(one.cost_ms)} in ${count(one.times)} runs, the last ${time(one.last_ms)}`);
		show(depends, one.depends);
		const reasons = Object.entries(WHY).filter(([name]) => one.why[name] !== undefined).map(([name, [label, words]]) => [label, words(one.why[name])]);
		pairs(why, [...reasons, ["given to the last one", one.given_ms === null ? "none" : time(one.given_ms)]]);
		return item;
	});
	const same = wanted.length === list.children.length && wanted.every((item, i) => list.children[i] === item);
	if (!same && !list.contains(document.activeElement)) list.replaceChildren(...wanted);
}

function take(now) {
	columns = now.columns;
	const newest = points.at(-1)?.[0] ?? 0;
	if (now.points[0]?.[0] > newest) points = now.points;
	else points.push(...now.points.filter(([at]) => at > newest));
	points = points.slice(-SECONDS);
	latest = now;
	goneSince = null;
	$("state").className = "";
	const away = now.processes.filter(({ serving }) => !serving).length;
	show($("state"), `${now.processes.length === 1 ? "1 process" : `${now.processes.length} processes`}, ${now.processes.length === 0 ? "none of the app's answers" : away ? `${away} serving nothing from cache` : "serving"}`);
	display();
}

function display() {
	if (!latest) return;
	document.body.classList.toggle("no-cdn", !latest.cdn);
	for (const name of ["answers", "invalidations", "lag", "sketch", "deliveries", "liveLag"]) charts[name].mark(tuning.marks());
	showHealth(latest);
	showFigures(latest);
	showAnswers(latest);
	showRoutes(latest.routes);
	showInvalidation(latest);
	showLive(latest, column, charts);
	showLifetimes(latest);
	showHeaviest(latest);
	tuning.published(latest.published, latest.canary, latest.lifetimes.map(({ kind }) => kind).filter(Boolean));
}

function complain(text) {
	show($("problem"), text);
	$("problem").hidden = !text;
}

async function keepLooking(round) {
	while (known() && round === showing) {
		if (!document.hidden) {
			try {
				const fresh = latest && Date.now() - latest.at < 10_000;
				const now = await call(fresh ? "data?latest" : "data");
				if (round !== showing) return;
				take(now);
				now.at = Date.now();
				complain("");
				window.ready = true;
			} catch (error) {
				if (!(error instanceof Problem)) throw error;
				if (error.status === 401 || error.status === 429) return leave(error.status === 401 ? "That is not the token." : error.message);
				complain(error.message);
				if (error.status === 0 || error.status >= 500) showGone();
			}
		}
		await new Promise((wake) => setTimeout(wake, EVERY_MS));
	}
}

/** Say in the header that the server does not answer, since when, and that the figures are older. */
function showGone() {
	goneSince ??= new Date();
	show($("state"), `server gone since ${goneSince.toLocaleTimeString()}: the figures are from before`);
	$("state").className = "bad";
}

async function enter() {
	try {
		const state = await call("parameters");
		$("entrance").hidden = true;
		$("panels").hidden = $("sections").hidden = false;
		charts ??= makeCharts();
		tuning ??= startTuning();
		showRoutes ??= startRoutes();
		tuning.take(state);
		complain("");
		showing = crypto.randomUUID?.() ?? String(Math.random());
		const round = showing;
		const alive = () => known() && round === showing;
		await Promise.all([keepLooking(round), keepContinuous(alive, call), keepChannels(alive, call)]);
	} catch (error) {
		if (!(error instanceof Problem)) throw error;
		if (error.status === 401) leave("That is not the token.");
		else complain(error.message);
	}
}

function leave(why = "") {
	forget();
	showing = "";
	latest = null;
	points = [];
	$("entrance").hidden = false;
	$("panels").hidden = $("sections").hidden = true;
	show($("state"), "not connected");
	complain(why);
	$("token").focus();
}

$("login").addEventListener("submit", (event) => {
	event.preventDefault();
	remember($("token").value.trim());
	$("token").value = "";
	enter();
});
$("leave").addEventListener("click", () => leave());
$("kind").addEventListener("change", display);

if (known()) enter();
else window.ready = true;
