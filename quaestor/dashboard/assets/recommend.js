// One recommendation out of a trial, for a goal. Pure.

import { share } from "./words.js";

const mean = (point, figure) => point.figures[figure][0];
const half = (point, figure) => point.figures[figure][1] ?? 0;

/**
 * The recommendation of a trial: the most fresh hits in browsers among what keeps the goal.
 * points: of the trial, "now" among them; staleAtMost: the share of the requests (0..1) that may be stale.
 * Returns the point that is recommended, null for what counts now, and why.
 */
export function recommendation(points, staleAtMost) {
	const now = points.find(({ name }) => name === "now");
	// The upper end of the interval has to keep the goal: a mean below it may be luck.
	const keeps = (point) => mean(point, "stale") + half(point, "stale") <= staleAtMost;
	const said = (point) => `${share(mean(point, "browser_fresh"))} fresh hits in browsers, ${share(mean(point, "stale"))} stale`;
	const allowed = points.filter(keeps);
	if (!allowed.length) {
		const least = points.reduce((a, b) => (mean(b, "stale") < mean(a, "stale") ? b : a));
		return { point: null, why: `Nothing that was tried keeps at most ${share(staleAtMost)} stale. The least stale is ${least.name}: ${said(least)}. Try a smaller quantile.` };
	}
	const best = allowed.reduce((a, b) => (mean(b, "browser_fresh") > mean(a, "browser_fresh") ? b : a));
	if (keeps(now)) {
		const noise = Math.hypot(half(best, "browser_fresh"), half(now, "browser_fresh"));
		if (best === now) return { point: null, why: `Keep what counts now: nothing that was tried has more hits at at most ${share(staleAtMost)} stale (${said(now)}).` };
		if (mean(best, "browser_fresh") - mean(now, "browser_fresh") <= noise) return { point: null, why: `Keep what counts now: the differences are noise. The best, ${best.name}, has ${said(best)}; now it is ${said(now)}, and the intervals overlap.` };
	}
	return { point: best, why: `Take ${best.name}: ${said(best)}. Now it is ${said(now)}.` };
}
