/** Pauses after failures: random and growing, so that clients that lost one server come back spread over time. */

const SHORTEST = 100;

/** Over HTTP: too many requests at present. On a socket: too many subscriptions, until one of them ends. */
export const TOO_MANY = 429;
/** Statuses of a server that may answer the same request later. */
export const AGAIN: ReadonlySet<number | undefined> = new Set([TOO_MANY, 500, 502, 503, 504]);

/** The pause after this many failures in a row, in ms: at most twice as long as before, and at most `longest`. */
export const pauseAfter = (failures: number, longest = 10_000): number => Math.min(longest, SHORTEST * 2 ** failures) * Math.random();
