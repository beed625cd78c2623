// Continuous queries: next runs, rows, lag, dead letters, the three texts; pause, resume and replay for operators.

import { keepSection } from "./section.js";
import { $, choices, count, rows, show, time } from "./words.js";

const HEADS = ["query", "state", "every", "next run", "#late", "#rows", "#dead letters", "sinks"];
const LETTERS = ["key", "sink", "reason", "error", "#rows", "#attempts"];

/** Lines of the table of queries. Pure. */
export function queryLines(queries, nowMs) {
	return queries.map((query) => {
		const due = query.next === null ? "–" : Date.parse(query.next) <= nowMs ? "now" : `in ${time(Date.parse(query.next) - nowMs)}`;
		const state = { text: query.reason ? `${query.state}: ${query.reason}` : query.state, level: query.state === "quarantined" ? "bad" : "" };
		const late = query.late_s ? time(1000 * query.late_s) : "–";
		const dead = { text: count(query.dead_letters), level: query.dead_letters ? "warn" : "" };
		return [query.name, state, query.every, due, late, count(query.rows), dead, query.sinks.join(", ") || "–"];
	});
}

/** Sentence about a change that was made. Pure. */
export function doneSentence(change, name, done) {
	if (change === "replay") return `${name}: ${count(done.delivered)} batches delivered, ${count(done.failed)} failed.`;
	return `${name} is ${done.state}.`;
}

/** Show the section as long as alive() holds. call: of server.js. */
export async function keepContinuous(alive, call) {
	let may = false;
	let detailed = "";

	async function look(busy) {
		const { queries, may_change, now_ms } = await call("continuous");
		$("continuous").hidden = $("to-continuous").hidden = queries === null;
		if (queries === null) return false;
		may = may_change;
		rows($("queries"), HEADS, queryLines(queries, now_ms));
		choices($("query"), queries.map(({ name }) => [name, name]));
		const chosen = queries.find(({ name }) => name === $("query").value);
		await detail(chosen);
		$("query-pause").disabled = busy() || !may || chosen?.state !== "active";
		$("query-resume").disabled = busy() || !may || !chosen || chosen.state === "active";
		$("query-replay").disabled = busy() || !may || !chosen?.dead_letters;
		return true;
	}

	async function detail(chosen) {
		const wanted = chosen && JSON.stringify([chosen.name, chosen.text, chosen.dead_letters]);
		if (!wanted || wanted === detailed) return;
		const { texts, dead_letters } = await call(`continuous/query?name=${encodeURIComponent(chosen.name)}`);
		detailed = wanted;
		for (const [part, text] of Object.entries(texts)) show($(`query-${part}`), text);
		rows($("letters"), LETTERS, dead_letters.map((one) => [one.key, one.sink, one.reason, one.error, count(one.rows), count(one.attempts)]));
	}

	await keepSection(alive, call, { path: "continuous/change", choice: "query", acts: ["pause", "resume", "replay"], sentence: doneSentence, look });
}
