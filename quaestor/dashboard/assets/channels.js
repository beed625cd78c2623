// Channels: runs, brokers, feeds, dead letters; acts of operators.

import { keepSection } from "./section.js";
import { $, choices, count, element, number, rows, share, show, time } from "./words.js";

const HEADS = ["channel", "kind", "state", "#period", "#newest run took", "#overruns", "next run", "#late", "#subscriptions", "#results", "#dead letters"];
const BROKERS = ["broker", "address", "state", "channel", "#subscriptions", "acknowledged up to", "#lag"];
const FEEDS = ["feed", "source", "dataset", "state", "#batches", "#records a second", "newest record", "#rejected"];
const RUNS = ["run", "outcome", "#took", "#period", "#of the period", "#results", "error"];
const LETTERS = ["key", "broker", "reason", "error", "#rows", "#attempts"];
const STAGES = ["load", "subscriptions", "execute", "encode", "publish"];

/** Lines of the table of channels. Pure. */
export function channelLines(channels, nowMs) {
	return channels.map((channel) => {
		const due = channel.next === null ? "–" : Date.parse(channel.next) <= nowMs ? "now" : `in ${time(Date.parse(channel.next) - nowMs)}`;
		const kind = `${channel.kind}${channel.push ? ", push" : ""}${channel.priority === "normal" ? "" : `, ${channel.priority} priority`}`;
		const state = { text: channel.error ? `${channel.state}: ${channel.error}` : channel.state, level: channel.error ? "bad" : "" };
		const took = channel.took_s === null ? "–" : { text: time(1000 * channel.took_s), level: channel.took_s > channel.period_s ? "bad" : "" };
		const overruns = { text: channel.runs ? `${count(channel.overruns)} of ${count(channel.runs)}` : "–", level: channel.overruns ? "warn" : "" };
		const dead = { text: count(channel.dead_letters), level: channel.dead_letters ? "warn" : "" };
		return [channel.name, kind, state, time(1000 * channel.period_s), took, overruns, due,
			channel.late_s ? time(1000 * channel.late_s) : "–", count(channel.subscriptions), count(channel.results), dead];
	});
}

/** Lines of the table of brokers. Pure. */
export function brokerLines(brokers) {
	return brokers.map((broker) => [
		broker.name, broker.url, { text: broker.state, level: /^(lease over|down)/.test(broker.state) ? "bad" : "" }, broker.channel ?? "–",
		count(broker.subscriptions), broker.acknowledged ?? "–", { text: broker.lag_s ? time(1000 * broker.lag_s) : "–", level: broker.lag_s > 60 ? "warn" : "" },
	]);
}

/** Lines of the table of feeds. Pure. */
export function feedLines(feeds) {
	return feeds.map((feed) => [
		feed.name, feed.type, feed.dataset || "–", feed.state, count(feed.batches), number(feed.rate),
		feed.newest_s === null ? "–" : `${time(1000 * feed.newest_s)} ago`, { text: count(feed.rejected), level: feed.rejected ? "warn" : "" },
	]);
}

/** Lines of the table of a channel's runs, the newest first. Pure. */
export function runLines(runs) {
	return runs.map((run) => {
		const part = run.period_s ? share(run.took_s / run.period_s) : "–";
		return [run.run, { text: run.outcome, level: run.outcome === "failed" ? "bad" : "" }, time(1000 * run.took_s), run.period_s ? time(1000 * run.period_s) : "–",
			{ text: part, level: run.is_overrun ? "bad" : "" }, count(run.rows), run.error || "–"];
	});
}

/** Stages of runs, each with its mean time in ms and its share. Pure. */
export function stageLines(runs) {
	const done = runs.filter((run) => run.outcome !== "failed");
	const sums = STAGES.map((stage) => done.reduce((sum, run) => sum + (run.stages_s[stage] ?? 0), 0));
	const whole = sums.reduce((sum, one) => sum + one, 0);
	return STAGES.map((stage, i) => ({ stage, meanMs: done.length ? (1000 * sums[i]) / done.length : null, part: whole ? sums[i] / whole : 0 }));
}

/** Show the section as long as alive() holds. call: of server.js. */
export async function keepChannels(alive, call) {
	async function look(busy) {
		const { channels, brokers, feeds, may_change, now_ms } = await call("channels");
		$("channels").hidden = $("to-channels").hidden = channels === null || !(channels.length + brokers.length + feeds.length);
		if (channels === null) return false;
		rows($("channels-table"), HEADS, channelLines(channels, now_ms));
		rows($("brokers"), BROKERS, brokerLines(brokers));
		rows($("feeds"), FEEDS, feedLines(feeds));
		choices($("channel"), channels.map(({ name }) => [name, name]));
		const chosen = channels.find(({ name }) => name === $("channel").value);
		if (chosen) await detail(chosen);
		$("channel-pause").disabled = busy() || !may_change || chosen?.state !== "ready";
		$("channel-resume").disabled = busy() || !may_change || chosen?.state !== "paused";
		$("channel-replay").disabled = $("channel-discard").disabled = busy() || !may_change || !chosen?.dead_letters;
		return true;
	}

	async function detail(chosen) {
		const { text, runs, dead_letters } = await call(`channels/channel?name=${encodeURIComponent(chosen.name)}`);
		show($("channel-text"), text);
		rows($("runs"), RUNS, runLines(runs));
		const stages = stageLines(runs);
		rows($("stages"), ["stage", "#mean time", "#share"], stages.map(({ stage, meanMs, part }) => [stage, time(meanMs), share(part)]));
		bar(stages);
		rows($("channel-letters"), LETTERS, dead_letters.map((one) => [one.key, one.sink, one.reason, one.error, count(one.rows), count(one.attempts)]));
	}

	function bar(stages) {
		const parts = stages.map(({ stage, part }, i) => {
			const piece = element("span", part > 0.1 ? stage : "", { className: `b${i + 1}` });
			piece.style.flexGrow = part;
			return piece;
		});
		$("stage-bar").replaceChildren(...parts);
	}

	await keepSection(alive, call, { path: "channels/change", choice: "channel", acts: ["pause", "resume", "replay", "discard"], sentence: (_act, _name, done) => `${done}.`, look });
}
