// Hit rates by route, or by collection: searched, sorted, with why the rest was not answered from cache.

import { $, count, element, share } from "./words.js";

const HEADS = [["name", "route"], ["also", "collections"], ["requests", "requests"], ["rate", "hit rate"], ["even", "break-even"], ["passed", "past the cache"], ["why", "why not from cache"]];
const MISSES = new Set(["absent", "invalidated", "withdrawn", "expired", "demand", "outdated", "cleared", "refresh"]);

/** The page section that explains a reason. */
export const explained = (reason, miss = MISSES.has(reason)) => `reasons.html#${miss ? "miss-" : ""}${reason}`;

function line(name, also, several) {
	const total = (figure) => several.reduce((sum, one) => sum + one[figure], 0);
	const why = {};
	for (const one of several) for (const [reason, times] of Object.entries(one.why)) why[reason] = (why[reason] ?? 0) + times;
	const requests = total("hits") + total("misses") + total("passed");
	const reasons = Object.entries(why).sort((a, b) => b[1] - a[1]).slice(0, 3);
	return { name, also, requests, rate: total("hits") / requests, even: several.length === 1 ? several[0].break_even ?? -1 : -1, passed: total("passed") / requests, why: reasons.map(([reason]) => reason).join(" "), reasons };
}

/** The lines of a table of routes. by: "route" or "collection"; sort: a column, with "-" before it from high to low. */
export function lines(routes, { by, search, sort }) {
	let found;
	if (by === "collection") {
		const names = [...new Set(routes.flatMap(({ collections }) => collections))];
		found = names.map((name) => {
			const those = routes.filter(({ collections }) => collections.includes(name));
			return line(name, those.map(({ route }) => route).join(", "), those);
		});
	} else found = routes.map((one) => line(one.route, one.collections.join(", "), [one]));
	const wanted = search.trim().toLowerCase();
	found = found.filter((one) => `${one.name} ${one.also} ${one.why}`.toLowerCase().includes(wanted));
	const column = sort.replace("-", "");
	const order = (a, b) => (typeof a[column] === "string" ? a[column].localeCompare(b[column]) : a[column] - b[column]);
	return found.sort((a, b) => (sort.startsWith("-") ? -order(a, b) : order(a, b)));
}

/** The section of routes. */
export function startRoutes() {
	let routes = [];
	let sort = "-requests";

	function draw() {
		const by = $("routes-by").value;
		const found = lines(routes, { by, search: $("routes-search").value, sort });
		const text = JSON.stringify([found, by, sort]);
		if ($("routes-table").dataset.text === text) return;
		$("routes-table").dataset.text = text;
		const heads = HEADS.map(([column, label], i) => {
			const name = by === "collection" && i < 2 ? ["collection", "routes"][i] : label;
			const ordered = sort.replace("-", "") === column ? (sort.startsWith("-") ? "descending" : "ascending") : "none";
			const head = element("th", null, { scope: "col", className: i > 1 && i < 6 ? "n" : "" }, element("button", `${name}${{ ascending: " ▲", descending: " ▼", none: "" }[ordered]}`, { type: "button", id: `sort-${column}` }));
			head.setAttribute("aria-sort", ordered);
			return head;
		});
		const body = found.map((one) => element("tr", null, {},
			element("th", one.name, { scope: "row" }), element("td", one.also || "–"), element("td", count(one.requests), { className: "n" }),
			element("td", share(one.rate), { className: "n" }), element("td", one.even < 0 ? "–" : share(one.even), { className: "n" }), element("td", share(one.passed), { className: "n" }),
			element("td", null, {}, ...one.reasons.flatMap(([reason, times], i) => [i ? ", " : "", element("a", reason, { href: explained(reason) }), ` ${count(times)}`])),
		));
		const none = element("tr", null, {}, element("td", routes.length ? "no route is called so" : "nothing yet", { colSpan: HEADS.length, className: "soft" }));
		const focused = document.activeElement?.id;
		$("routes-table").querySelector("thead")?.remove();
		$("routes-table").querySelector("tbody")?.remove();
		$("routes-table").append(element("thead", null, {}, element("tr", null, {}, ...heads)), element("tbody", null, {}, ...(body.length ? body : [none])));
		if (focused?.startsWith("sort-")) $(focused)?.focus();
	}

	$("routes-table").addEventListener("click", ({ target }) => {
		if (!target.id?.startsWith("sort-")) return;
		const column = target.id.slice("sort-".length);
		const high = sort === `-${column}` || (sort.replace("-", "") !== column && ["name", "also", "why"].includes(column));
		sort = high ? column : `-${column}`;
		draw();
	});
	$("routes-by").addEventListener("change", draw);
	$("routes-search").addEventListener("input", draw);
	return (fresh) => {
		routes = fresh;
		draw();
	};
}
