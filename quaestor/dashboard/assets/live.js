// Followed answers and live queries: clients, deliveries, lag, slow readers, ends, answers over HTTP.

import { $, count, number, pairs, rows, time } from "./words.js";

const all = (labels) => Object.values(labels ?? {}).reduce((sum, value) => sum + value, 0);

/** The tiles of a snapshot: names and values. Pure. */
export function tiles({ sums, highest }) {
	return [
		["WebSockets", count(all(sums.live_connections))],
		["Subscriptions", count(all(sums.live_subscriptions))],
		["Long polls of live queries", count(all(sums.live_polls))],
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

/** Lines of a table: label of the metric, times in the last 5 minutes, since the start; the most frequent first. Pure. */
export function counted(metric, { sums, windows }) {
	const since = Object.entries(sums[metric] ?? {}).filter(([, times]) => times);
	return since.sort((a, b) => b[1] - a[1]).map(([label, times]) => [label, count(windows["300"][metric]?.[label] ?? 0), count(times)]);
}

/** Lines of the table of refused clients. Pure. */
export function refused({ sums }) {
	const lines = (metric, kind) => Object.entries(sums[metric] ?? {}).filter(([, times]) => times).map(([limit, times]) => [kind, limit, count(times)]);
	const overHttp = sums.live_http?.refused ?? 0;
	const httpLines = overHttp ? [["live query over HTTP", "limit, rights or error", count(overHttp)]] : [];
	return [...lines("live_rejected", "WebSocket"), ...lines("followers_refused", "stream or poll"), ...httpLines];
}

/** Show the section. column: values of the history by name; charts: of the page. */
export function showLive(now, column, charts) {
	pairs($("live-tiles"), tiles(now));
	const at = column("at_ms").map((ms) => ms / 1000);
	const [pushed, messages, answers, lag] = ["pushed", "live_messages", "live_answers", "live_lag_ms"].map(column);
	const newest = [pushed, messages, answers].map((values) => number(values.at(-1) ?? 0));
	const words = `Deliveries a second now: followed answers ${newest[0]}, live queries ${newest[1]}, HTTP answers of live queries ${newest[2]}`;
	charts.deliveries.draw([at, pushed, messages, answers], words);
	charts.liveLag.draw([at, lag], `Lag of the slowest followed result ${time(lag.at(-1) ?? 0)}`);
	const heads = ["reason", "#5 minutes", "#since the start"];
	rows($("live-ended"), heads, counted("live_ended", now));
	rows($("followers-ended"), heads, counted("followers_ended", now));
	rows($("live-http"), ["answer", ...heads.slice(1)], counted("live_http", now));
	rows($("live-refused"), ["client", "limit", "#times"], refused(now));
}
