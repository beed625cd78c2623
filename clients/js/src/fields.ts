/** The header fields that a server with a Cache Sketch sends: `Quaestor-TTL` and `Quaestor-Sketch`. */

/** The lifetime of an answer, as its `Quaestor-TTL` field gives it to clients with the sketch. */
export interface Lifetime {
	/** When the server sent it, in ms since the epoch by the server's clock. */
	at: number;
	/** When it ends, by the same clock. */
	until: number;
	/** Whether it was made for one user. */
	personal: boolean;
}

/** A number written in digits only; 0 for anything else. */
export const digits = (text: string | null | undefined): number => (/^\d{1,15}$/.test(text ?? "") ? Number(text) : 0);

const pairs = (parts: string[]): Record<string, string | undefined> =>
	Object.fromEntries(parts.map((part) => part.split("=")));

/** The names in an answer's `Vary`. */
export const varies = (answer: Response): string[] => answer.headers.get("vary")?.toLowerCase().match(/[^\s,]+/g) ?? [];

/**
 * The lifetime that an answer was given; undefined if none, or a malformed one.
 *
 * Nor has an answer one that another URL gave, or one that depends on what a page cannot see of its own requests.
 */
export const lifetime = (answer: Response): Lifetime | undefined => {
	const [ttl, ...rest] = (answer.headers.get("quaestor-ttl") ?? "").split(/\s*;\s*/);
	const said = pairs(rest);
	const at = digits(said.at);
	if (!digits(ttl) || !at || answer.redirected || varies(answer).some((name) => name === "*" || name === "cookie")) return;
	return { at, until: at + digits(ttl) * 1000, personal: "private" in said };
};

/** What `Quaestor-Sketch` says, by name. */
export const aboutSketch = (answer: Response): Record<string, string | undefined> =>
	pairs((answer.headers.get("quaestor-sketch") ?? "").split(/\s*[,;]\s*/));
