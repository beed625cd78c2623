/** The header fields that a server with a Cache Sketch sends: `Quaestor-TTL` and `Quaestor-Sketch`. */

/** The lifetime of an answer, as its `Quaestor-TTL` field gives it to clients with the sketch. */
export interface Lifetime {
	/** When the server sent it, in ms since the epoch by the server's clock. */
	at: number;
	/** The answer shows all writes before this time: the time it was sent or, later, checked. */
	shows: number;
	/** When it ends, by the same clock. */
	until: number;
	/** The partition of the sketch that tells of it; empty: the union. */
	partition: string;
	/** Whether it was made for one user. */
	personal: boolean;
}

const LIFETIME = /^(\d{1,9});at=(\d{1,15})(?:;sketch=([\w~-]{1,64}))?(;private)?$/;

/** A number written in digits only; 0 for anything else. */
export const digits = (text: string | null | undefined): number => (/^\d{1,15}$/.test(text!) ? +text! : 0);

/** The names in an answer's `Vary`. */
export const varies = (answer: Response): string[] => answer.headers.get("vary")?.toLowerCase().match(/[^\s,]+/g) ?? [];

/**
 * The lifetime that an answer was given; undefined if none, or a malformed one.
 *
 * Nor has an answer one that another URL gave, or one that depends on what a page cannot see of its own requests. A page knows by other
 * means when its user changes, so an answer for one user may depend on cookies.
 */
export const lifetime = (answer: Response): Lifetime | undefined => {
	const [, ttl, at, partition = "", personal] = LIFETIME.exec(answer.headers.get("quaestor-ttl")!) ?? [];
	if (!at || answer.redirected || varies(answer).some((name) => name === "*" || (!personal && name === "cookie"))) return;
	return { at: +at, shows: +at, until: +at + +ttl! * 1000, partition, personal: !!personal };
};
