// Marks in charts over time: when parameters were applied. Pure.

/** Marks for the entries of the audit trail: a time in s and a text. Number 0 stands for the settings: nobody applied them. */
export function marksOf(history) {
	const applied = history.filter(({ number }) => number);
	return applied.map(({ number, at_ms, canary }) => ({ at: at_ms / 1000, text: `${canary ? "canary" : "applied"} ${number}` }));
}

/** Marks within the times that a chart shows, both ends included. */
export const between = (marks, low, high) => marks.filter(({ at }) => low <= at && at <= high);
