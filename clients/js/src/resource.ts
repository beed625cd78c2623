/**
 * Name of a URL in the Cache Sketch: its path and its query string, normalised and sorted.
 *
 * The rules stand in `quaestor/read_path/key.py`; `tests/sketch_clients/resources.json` holds both languages to them.
 */

const UNUSUAL = /%[0-9A-Fa-f]{2}|[^A-Za-z0-9\-._~!$&'()*+,;=:@/?]/gu;
const UNRESERVED = /[A-Za-z0-9\-._~]/;

const escaped = (found: string): string => {
	if (found.length === 3 && found.startsWith("%")) {
		const character = String.fromCharCode(Number.parseInt(found.slice(1), 16));
		return UNRESERVED.test(character) ? character : found.toUpperCase();
	}
	return encodeURIComponent(found.isWellFormed?.() === false ? "\ufffd" : found);
};

const nameOf = (piece: string): string => piece.split("=", 1)[0]!;

const byName = (a: string, b: string): number => {
	const nameA = nameOf(a);
	const nameB = nameOf(b);
	return nameA < nameB ? -1 : nameA > nameB ? 1 : 0;
};

/**
 * The Cache Sketch key of a request target.
 *
 * @param path as it is sent: `new URL(u).pathname`.
 * @param query as it is sent, without its `?`: `new URL(u).search.slice(1)`.
 */
export const resource = (path: string, query: string): string => {
	const name = path.replace(UNUSUAL, escaped).replaceAll("?", "%3F") || "/";
	const pieces = query
		.replace(UNUSUAL, escaped)
		.split("&")
		.filter((piece) => piece)
		.sort(byName);
	return pieces.length ? `${name}?${pieces.join("&")}` : name;
};
