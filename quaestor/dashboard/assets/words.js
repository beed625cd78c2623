// Numbers in words, and elements.

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export const $ = (id) => document.getElementById(id);
export const count = (value) => plain.format(value);
export const number = (value) => (Math.abs(value) >= 1000 ? plain : fine).format(value);
export const share = (value) => `${fine.format(100 * value)} %`;

/** A time in ms, in the unit that suits it. */
export function time(ms) {
	if (ms === null || ms === undefined) return "–";
	for (const [unit, size] of [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1_000]]) {
		if (Math.abs(ms) >= size) return `${fine.format(ms / size)} ${unit}`;
	}
	return `${fine.format(ms)} ms`;
}

/** An element with text, attributes and children. */
export function element(name, text, attributes = {}, ...children) {
	const made = Object.assign(document.createElement(name), attributes);
	if (text !== null) made.textContent = text;
	made.append(...children);
	return made;
}

export function show(target, text) {
	if (target.textContent !== text) target.textContent = text;
}

/** Pairs of a name and a value, updated in place. */
export function pairs(list, entries) {
	const wanted = entries.map(([name]) => name).join("\n");
	if (list.dataset.names !== wanted) {
		list.dataset.names = wanted;
		list.replaceChildren(...entries.map(([name]) => element("div", null, {}, element("dt", name), element("dd", ""))));
	}
	entries.forEach(([, value], i) => show(list.children[i].lastElementChild, value));
}

/** Rows of a table below its caption; numbers stand right. A cell is a text, or a text with a reference and a class. */
export function rows(table, heads, lines) {
	const text = JSON.stringify([heads, lines]);
	if (table.dataset.text === text) return;
	table.dataset.text = text;
	const cell = (value, i, name) => {
		const { text: shown, href = null, level = "" } = typeof value === "object" ? value : { text: value };
		const content = href ? element("a", shown, { href }) : shown;
		return element(name, null, { className: [heads[i].startsWith("#") ? "n" : "", level].filter(Boolean).join(" ") }, content);
	};
	const head = element("tr", null, {}, ...heads.map((one, i) => Object.assign(cell(one.replace("#", ""), i, "th"), { scope: "col" })));
	const body = lines.map((line) => element("tr", null, {}, ...line.map((value, i) => cell(value, i, i ? "td" : "th"))));
	for (const line of body) line.firstElementChild.scope = "row";
	const empty = element("tr", null, {}, element("td", "nothing yet", { colSpan: heads.length, className: "soft" }));
	table.querySelector("thead")?.remove();
	table.querySelector("tbody")?.remove();
	table.append(element("thead", null, {}, head), element("tbody", null, {}, ...(body.length ? body : [empty])));
}

/** Options of a selection, left alone while they stay the same. */
export function choices(select, entries) {
	const text = JSON.stringify(entries);
	if (select.dataset.text === text) return;
	select.dataset.text = text;
	const chosen = select.value;
	select.replaceChildren(...entries.map(([value, label]) => element("option", label, { value })));
	if (entries.some(([value]) => value === chosen)) select.value = chosen;
}
