/**
 * Name of a URL in the Cache Sketch: its path and its query string, normalised and sorted.
 *
 * The rules stand in `quaestor/read_path/key.py`; `tests/sketch_clients/resources.json` holds both languages to them.
 */

const UNUSUAL = /%[\dA-Fa-f]{2}|[^\w.~!$&'()*+,;=:@/?-]/gu;
const UNRESERVED = /[\w.~-]/;

const escaped = (found: string): string => {
	// The others are of two halves at most.
	if (found[2]) {
		const character = unescape(found); // unlike `decodeURIComponent`, takes any byte by itself
		return UNRESERVED.test(character) ? character : found.toUpperCase();
	}
	return encodeURIComponent(found);
};

const nameOf = (piece: string): string => piece.split("=", 1)[0]!;

const byName = (a: string, b: string): number =>
	Number(nameOf(a) > nameOf(b)) - Number(nameOf(a) < nameOf(b));

/**
 * The Cache Sketch key of a request target.
 *
 * @param path as it is sent: `new URL(u).pathname`, in which neither half a character nor `?` is left.
 * @param query as it is sent, without its `?`: `new URL(u).search.slice(1)`.
 */
export const resource = (path: string, query: string): string => {
	const name = path.replace(UNUSUAL, escaped) || "/";
	const pieces = query.replace(UNUSUAL, escaped).match(/[^&]+/g);
	return pieces ? `${name}?${pieces.sort(byName).join("&")}` : name;
};
