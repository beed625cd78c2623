// The state of the cache in one line: figures beside their thresholds. Pure.

import { count, share, time } from "./words.js";

export const THRESHOLDS = { grid_lag_ms: 2000, evicted_p99_ms: 1000, sketch_false_positives: 0.2, purge_age_s: 30, fell: 0.5, least_requests: 100 };
/** As the alerts of `quaestor monitoring alerts`. */

const all = (labels) => Object.values(labels ?? {}).reduce((sum, value) => sum + value, 0);

/** Requests in some counts, and the share of them that was answered from cache; null: there were none. */
export function hitRate({ requests }) {
	const asked = all(requests);
	return { asked, rate: asked ? (requests.hit ?? 0) / asked : null };
}

/** Problems in a snapshot, the worst first: level ("bad" or "warn") and text. */
export function findings(now) {
	const found = [];
	const bad = (text) => found.push({ level: "bad", text });
	const warn = (text) => found.push({ level: "warn", text });
	const away = now.processes.filter(({ serving }) => !serving).length;
	if (!now.processes.length) bad("No process of the application reports.");
	if (away) bad(`${count(away)} of ${count(now.processes.length)} processes serve nothing from cache.`);
	const hour = now.windows["3600"];
	const recent = now.windows["300"];
	const diverged = hour.verifications.diverged ?? 0;
	if (diverged) bad(`${count(diverged)} stored answers differed from new ones in the last hour.`);
	const lag_ms = 1000 * (now.highest.grid_lag_seconds.all ?? 0);
	if (lag_ms > THRESHOLDS.grid_lag_ms) bad(`The grid lags by ${time(lag_ms)}; the threshold is ${time(THRESHOLDS.grid_lag_ms)}.`);
	const purge_s = now.highest.purges_oldest_seconds.all ?? Math.max(0, ...Object.values(now.highest.purges_oldest_seconds));
	if (now.cdn && purge_s > THRESHOLDS.purge_age_s) bad(`The oldest purge waits for ${time(1000 * purge_s)}; the threshold is ${time(1000 * THRESHOLDS.purge_age_s)}.`);
	const failures = all(recent.failures);
	if (failures) warn(`${count(failures)} failures in the last 5 minutes: ${Object.entries(recent.failures).map(([part, times]) => `${part} ${count(times)}`).join(", ")}.`);
	const late_ms = recent.evicted_ms.p99;
	if (late_ms > THRESHOLDS.evicted_p99_ms) warn(`One write in a hundred took ${time(late_ms)} to evict in the last 5 minutes; the threshold is ${time(THRESHOLDS.evicted_p99_ms)}.`);
	const wrong = now.highest.sketch_false_positives["union,measured"] ?? 0;
	if (wrong > THRESHOLDS.sketch_false_positives) warn(`The Cache Sketch names ${share(wrong)} of what is unchanged; the threshold is ${share(THRESHOLDS.sketch_false_positives)}.`);
	const [short, long] = [hitRate(recent), hitRate(hour)];
	if (short.asked >= THRESHOLDS.least_requests && short.rate < THRESHOLDS.fell * long.rate) warn(`The hit rate fell to ${share(short.rate)} in the last 5 minutes; in the last hour it was ${share(long.rate)}.`);
	for (const route of now.quarantined) warn(`Not cached: ${route}.`);
	for (const text of now.warnings) warn(text);
	return [...found.filter(({ level }) => level === "bad"), ...found.filter(({ level }) => level === "warn")];
}
