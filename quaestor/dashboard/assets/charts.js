// Charts: what is drawn by uPlot here has its colours from the style sheet, a key below it, and its newest values in words.
/* global uPlot */

const drawn = new Set();
const exact = new Intl.NumberFormat("en", { maximumSignificantDigits: 8 });
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
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
	host.after(key);
	host.setAttribute("role", "img");
	let plot = null;
	let data = null;
	// Where words round neighbouring ticks to the same text, the ticks are written out.
	const told = (words) => (_, ticks) => {
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
		scales: { x: { time: x === "time", ...(spread ? { range: spread } : {}) }, y: { range: spread ?? ((_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : 1]) } },
		axes: [axis(28, x === "time" ? undefined : told(x)), axis(58, told(words))],
		series: [{}, ...series.map((label, i) => ({
			label, stroke: () => css(`--c${i + 1}`), width: 2, paths: dots?.includes(label) ? () => null : paths, spanGaps: true,
			points: { show: kind === "points" || dots?.includes(label) || false, size: kind === "points" ? 10 : 7, fill: () => css(`--c${i + 1}`) },
		}))],
	});
	const self = {
		redraw() {
			if (plot) plot.redraw(false);
		},
		draw(columns, summary) {
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
