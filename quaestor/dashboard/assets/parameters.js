// Parameters of lifetimes: their fields, and in words what is different between two sets of them.

import { number, share, time } from "./words.js";

const seconds = { toShown: (ms) => ms / 1000, toKept: (s) => Math.round(s * 1000), unit: "s" };
const as = { toShown: (value) => value, toKept: (value) => value, unit: "" };

/** Fields by name: their label, the estimators that have them, how they are shown and entered. */
export const FIELDS = {
	quantile: { label: "Quantile", of: ["lifetimes", "dynamic"], words: share, slider: [0.01, 0.99, 0.01], ...as, help: "Share of the results that may change before their lifetime ends." },
	alpha: { label: "Alpha", of: ["lifetimes"], words: number, slider: [0, 0.99, 0.01], ...as, help: "Weight of the past when a lifetime is observed: larger is steadier and slower." },
	exponent: { label: "Exponent", of: ["lifetimes"], words: number, slider: [0.25, 4, 0.05], ...as, help: "Above 1, what is written seldom gets longer lifetimes, what is written often shorter ones; the quantile holds for all together." },
	daily: { label: "Writes follow the time of day", of: ["lifetimes"], words: (value) => (value ? "yes" : "no"), ...as },
	static_ms: { label: "Lifetime", of: ["static"], words: time, ...seconds },
	fraction: { label: "Share of the age", of: ["age"], words: share, slider: [0.01, 1, 0.01], ...as },
	ttl_min_ms: { label: "Never shorter than", words: time, ...seconds },
	ttl_max_ms: { label: "Never longer than", words: time, ...seconds },
	false_positives: { label: "Budget of false positives", words: (value) => (value ? share(value) : "none"), slider: [0, 0.5, 0.005], ...as, help: "Lifetimes are shortened while the sketch lists more by mistake. 0: without limit." },
	invalidations_hz: { label: "Budget of invalidations a second", words: (value) => (value ? number(value) : "none"), ...as, help: "Lifetimes are shortened while more copies have to be invalidated. 0: without limit." },
};

export const fieldsOf = (estimator) => Object.entries(FIELDS).filter(([, field]) => !field.of || field.of.includes(estimator));

/** The differences in words, one line each. */
export function changes(before, after) {
	const kinds = [...new Set([...Object.keys(before.kinds), ...Object.keys(after.kinds)])].sort();
	return [
		...differing("all collections", before.default, after.default),
		...kinds.flatMap((kind) => {
			if (!after.kinds[kind]) return [`${kind}: no numbers of its own any more`];
			const own = before.kinds[kind] ? [] : [`${kind}: numbers of its own`];
			return [...own, ...differing(kind, before.kinds[kind] ?? before.default, after.kinds[kind])];
		}),
	];
}

function differing(name, before, after) {
	const names = ["estimator", ...Object.keys(FIELDS)].filter((one) => before[one] !== after[one]);
	return names.map((one) => {
		const words = FIELDS[one]?.words ?? String;
		return `${name}: ${FIELDS[one]?.label.toLowerCase() ?? one} ${words(before[one])} → ${words(after[one])}`;
	});
}
