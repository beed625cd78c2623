// Followed answers and live queries: clients, deliveries, lag, slow readers, ends.

import { $, count, number, pairs, rows, time } from "./words.js";

const all = (labels) => Object.values(labels ?? {}).reduce((sum, value) => sum + value, 0);

/** The tiles of a snapshot: names and values. Pure. */
export function tiles({ sums, highest }) {
	return [
		["WebSockets", count(all(sums.live_connections))],
		["Subscriptions", count(all(sums.live_subscriptions))],
		["Different queries", count(all(sums.subscribed_queries))],
		["Streams and long polls", count(all(sums.followers))],
		["Followed answers", count(all(sums.followed_answers))],
		["Lag of the slowest result", time(1000 * all(highest.subscriptions_lag_seconds))],
		["Results that stand still", count(all(sums.subscriptions_stalled))],
		["Slow readers now", count(all(sums.live_slow_readers))],
		["Messages that wait", count(all(sums.live_unsent))],
		["Slow readers: events dropped", count(all(sums.live_overflows))],
		["Slow readers: closed", count(all(sums.live_slow_clients) + (sums.followers_ended?.slow ?? 0))],
	];
}

/** Lines of a table of ends: reason, in the last 5 minutes, since the start; the most frequent first. Pure. */
export function ended(metric, { sums, windows }) {
	const since = Object.entries(sums[metric] ?? {}).filter(([, times]) => times);
	return since.sort((a, b) => b[1] - a[1]).map(([reason, times]) => [reason, count(windows["300"][metric]?.[reason] ?? 0), count(times)]);
}

/** Lines of the table of refused clients. Pure. */
export function refused({ sums }) {
	const lines = (metric, kind) => Object.entries(sums[metric] ?? {}).filter(([, times]) => times).map(([limit, times]) => [kind, limit, count(times)]);
	return [...lines("live_rejected", "WebSocket"), ...lines("followers_refused", "stream or poll")];
}

/** Show the section. column: values of the history by name; charts: of the page. */
export function showLive(now, column, charts) {
	pairs($("live-tiles"), tiles(now));
	const at = column("at_ms").map((ms) => ms / 1000);
	const [pushed, messages, lag] = ["pushed", "live_messages", "live_lag_ms"].map(column);
	charts.deliveries.draw([at, pushed, messages], `Deliveries a second now: followed answers ${number(pushed.at(-1) ?? 0)}, live queries ${number(messages.at(-1) ?? 0)}`);
	charts.liveLag.draw([at, lag], `Lag of the slowest followed result ${time(lag.at(-1) ?? 0)}`);
	const heads = ["reason", "#5 minutes", "#since the start"];
	rows($("live-ended"), heads, ended("live_ended", now));
	rows($("followers-ended"), heads, ended("followers_ended", now));
	rows($("live-refused"), ["client", "limit", "#times"], refused(now));
}
