// The canary: what is predicted of it, what was seen so far, and its end, by an operator or by itself.

import { changes } from "./parameters.js";
import { $, count, element, rows, share, show, time } from "./words.js";

const FIGURES = { hits: "requests that a copy could answer", invalidations: "lifetimes that a change cut short", stale: "requests that may be answered with something older" };
const GUARDS = { stale_at_most: "stale", hits_at_least: "hits" };
const HEADS = ["share of", "#canary", "#rest", "#band", "#on the trace", "judged"];

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const range = ([low, high]) => `${share(low)} to ${share(high)}`;
const at = (ms) => new Date(ms).toLocaleString();

/** The change that an entry of the audit trail made to the entry before; "": unknown. */
export function deed(one, before) {
	if (one.canary) return `canary of ${one.canary.share} % of the results: ${changes(one.parameters, one.canary.parameters).join("; ") || "the same parameters"}`;
	if (!before) return "";
	const lines = changes(before.parameters, one.parameters).join("; ");
	if (one.why) return [one.why, lines].filter(Boolean).join("; ");
	if (!before.canary) return lines || "the same again";
	if (same(one.parameters, before.canary.parameters)) return `canary promoted: ${lines || "the same again"}`;
	return lines ? `canary ended: ${lines}` : "canary rolled back";
}

/** The section of the canary. act(path): have an operator's call made. */
export function startCanary(act) {
	let state = null;
	let live = null;

	function sentence() {
		const { canary, history } = state;
		if (!canary) return history[0].why ? `The last one ended by itself, ${at(history[0].at_ms)}: ${history[0].why}.` : "No canary is running.";
		const seen = !live
			? "what the processes have counted is not known"
			: {
				waiting: "too little was seen yet",
				inside: "nothing is worse than predicted",
				broken: "a guard is broken; it is rolled back now",
				worse: `worse than predicted; rolled back by itself when it has been so for ${time(canary.hold_ms)}`,
			}[live.judgement.verdict];
		return `${canary.share} % of the results have other parameters since ${at(canary.at_ms)}, by ${canary.by}: ${seen}.`;
	}

	function line(name, [, , now, chosen]) {
		const trace = `${share(now)} → ${share(chosen)}`;
		const one = live?.judgement.figures.find((figure) => figure.name === name);
		if (!one) return [FIGURES[name] ?? name, "–", "–", "–", trace, live?.cdn ? "not compared: a CDN answers such requests" : "–"];
		const inside = one.band[0] <= one.canary && one.canary <= one.band[1];
		const judged = !one.enough ? `too few: ${count(one.observed)} seen` : one.worse ? "worse than predicted" : inside ? "within the band" : "not worse than the band";
		return [FIGURES[name] ?? name, `${share(one.canary)} (${range(one.interval)})`, share(one.rest), range(one.band), trace, judged];
	}

	function guard(name, limit) {
		const figure = GUARDS[name];
		const one = live?.judgement.guards.find((guarded) => guarded.name === figure);
		const heading = `guard: ${FIGURES[figure]}`;
		const bound = `${figure === "stale" ? "at most" : "at least"} ${share(limit)}`;
		if (!one?.enough) return [heading, "–", "–", bound, "–", one && live.cdn && figure === "hits" ? "not judged: a CDN answers such requests" : `too few: ${count(one?.observed ?? 0)} seen`];
		return [heading, `${share(one.canary)} (${range(one.interval)})`, "–", bound, "–", one.broken ? "broken" : one.kept ? "kept" : "not kept, within the interval"];
	}

	function draw() {
		const { canary } = state;
		show($("canary-status"), sentence());
		if (!canary && $("canary-running").contains(document.activeElement)) $("canary-title").focus();
		$("canary-running").hidden = !canary;
		if (!canary) return;
		const lines = changes(state.parameters, canary.parameters);
		if ($("canary-changes").dataset.text !== lines.join("\n")) {
			$("canary-changes").dataset.text = lines.join("\n");
			$("canary-changes").replaceChildren(...(lines.length ? lines : ["the same parameters"]).map((text) => element("li", text)));
		}
		rows($("canary-figures"), HEADS, [
			...Object.entries(canary.predicted).map(([name, one]) => line(name, one)),
			...Object.entries(canary.guards).map(([name, limit]) => guard(name, limit)),
		]);
		show($("canary-counted"), `${count(live?.judgement.requests ?? 0)} of ${count(canary.after)} requests were seen for its results, ${count(live?.rest ?? 0)} for the others. ${canary.promote ? "Then it is promoted by itself, if nothing is worse." : "The canary is not promoted by itself."}`);
		$("canary-acting").hidden = !state.may_apply;
		$("promote").disabled = !live || Boolean(live.hindrance);
		show($("canary-why"), live?.hindrance ?? "");
	}

	$("promote").addEventListener("click", () => act("promote"));
	$("rollback").addEventListener("click", () => act("rollback"));

	return {
		/** Take the parameters that count, and their canary. */
		take(fresh) {
			if (live?.number !== fresh.number) live = null;
			state = fresh;
			draw();
		},
		/** Note what was counted last. */
		note(report) {
			if (!state) return;
			live = report?.number === state.number ? report : null;
			draw();
		},
	};
}
