// Charts, drawn by uPlot with colours from the style sheet. Each has a key below it, its newest values in words, and the values
// at the pointer. Times without data are gaps; events are marked.
/* global uPlot */

import { between } from "./marks.js";

const GAP_S = 3;
const drawn = new Set();
const exact = new Intl.NumberFormat("en", { maximumSignificantDigits: 8 });
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

globalThis.matchMedia?.("(prefers-color-scheme: dark)").addEventListener("change", () => {
	for (const chart of drawn) chart.redraw();
});

/**
 * A chart in a host element.
 * series: names; words(value): a value in words; x: "time", or a function from a value on the x axis to its text.
 * kind: "line", "step" or "points"; spread: the ranges of both axes, from the lowest and the highest value; dots: series without a line.
 */
export function chart(host, { series, words, x = "time", kind = "line", spread = null, dots = null }) {
	const key = document.createElement("ul");
	key.className = "key";
	key.append(...series.map((name, i) => {
		const item = Object.assign(document.createElement("li"), { className: `k${i + 1}` });
		item.append(Object.assign(document.createElement("span"), { textContent: name }));
		return item;
	}));
	const hover = Object.assign(document.createElement("p"), { className: "hover" });
	hover.setAttribute("aria-hidden", "true");
	host.after(key, hover);
	host.setAttribute("role", "img");
	let plot = null;
	let data = null;
	let marks = [];
	const when = (value) => (x === "time" ? new Date(1000 * value).toLocaleTimeString() : x(value));
	function showValues(chart) {
		const { idx } = chart.cursor;
		const at = idx === null || idx === undefined ? null : chart.data[0][idx];
		const values = at === null ? [] : series.flatMap((name, i) => {
			const value = chart.data[i + 1][idx];
			return value === null || value === undefined || key.children[i].hidden ? [] : [`${name} ${words(value)}`];
		});
		const text = values.length ? `${when(at)}: ${values.join(", ")}` : "";
		if (hover.textContent !== text) hover.textContent = text;
	}
	function drawMarks(chart) {
		const { ctx, bbox } = chart;
		const { min, max } = chart.scales.x;
		ctx.save();
		ctx.strokeStyle = ctx.fillStyle = css("--c4");
		ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
		ctx.textBaseline = "alphabetic";
		ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
		for (const { at, text } of between(marks, min, max)) {
			const place = Math.round(chart.valToPos(at, "x", true));
			ctx.beginPath();
			ctx.moveTo(place, bbox.top);
			ctx.lineTo(place, bbox.top + bbox.height);
			ctx.stroke();
			const before = place > bbox.left + bbox.width / 2;
			ctx.textAlign = before ? "right" : "left";
			ctx.fillText(text, place + (before ? -3 : 3) * devicePixelRatio, bbox.top + 11 * devicePixelRatio);
		}
		ctx.restore();
	}
	// Where words round neighbouring ticks to the same text, the ticks are written out.
	const labels = (words) => (_, ticks) => {
		const texts = ticks.map((tick) => words(tick));
		return new Set(texts).size < texts.length ? ticks.map((tick) => exact.format(tick)) : texts;
	};
	const axis = (size, values) => ({
		stroke: () => css("--soft"), grid: { stroke: () => css("--line"), width: 1 }, ticks: { stroke: () => css("--line"), width: 1 },
		font: "12px system-ui, sans-serif", size, ...(values ? { values } : {}),
	});
	const paths = { line: undefined, step: uPlot.paths.stepped({ align: 1 }), points: () => null }[kind];
	const options = () => ({
		width: host.clientWidth, height: host.clientHeight, legend: { show: false }, cursor: { drag: { x: false, y: false } },
		hooks: { setCursor: [showValues], draw: [drawMarks] },
		scales: { x: { time: x === "time", ...(spread ? { range: spread } : {}) }, y: { range: spread ?? ((_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : 1]) } },
		axes: [axis(28, x === "time" ? undefined : labels(x)), axis(58, labels(words))],
		series: [{}, ...series.map((label, i) => ({
			label, stroke: () => css(`--c${i + 1}`), width: 2, paths: dots?.includes(label) ? () => null : paths, spanGaps: x !== "time",
			points: { show: kind === "points" || dots?.includes(label) || false, size: kind === "points" ? 10 : 7, fill: () => css(`--c${i + 1}`) },
		}))],
	});
	const self = {
		redraw() {
			if (plot) plot.redraw(false);
		},
		/** Mark times on the x axis, each with a text. */
		mark(several) {
			marks = several;
		},
		/** Show the key of a series, or leave it out. */
		omit(i, omitted) {
			key.children[i].hidden = omitted;
		},
		draw(values, summary) {
			const columns = x === "time" ? withGaps(values) : values;
			data = columns;
			host.setAttribute("aria-label", summary);
			const empty = !columns[0].length;
			host.querySelector(".none")?.remove();
			if (empty) host.append(Object.assign(document.createElement("span"), { className: "none", textContent: "nothing yet" }));
			if (!host.clientWidth) return;
			if (plot) plot.setData(columns);
			else plot = new uPlot(options(), columns, host);
		},
	};
	new ResizeObserver(() => {
		if (!host.clientWidth || !data) return;
		if (plot) plot.setSize({ width: host.clientWidth, height: host.clientHeight });
		else plot = new uPlot(options(), data, host);
	}).observe(host);
	drawn.add(self);
	return self;
}

/** Columns in which a time without data is a gap: a point without values after the last one before it. */
export function withGaps(columns) {
	const [at] = columns;
	const made = columns.map(() => []);
	at.forEach((second, i) => {
		if (i && second - at[i - 1] > GAP_S) made.forEach((column, j) => column.push(j ? null : at[i - 1] + 1));
		columns.forEach((column, j) => made[j].push(column[i]));
	});
	return made;
}
