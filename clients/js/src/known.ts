/** A client's knowledge of the server. Times are the server's, in ms since the epoch. */

import { type ServerTime, serverTime } from "./server_time.ts";
import type { Sketch } from "./sketch.ts";

/** Later than every moment, and a number in JSON too. */
export const LATEST = 1e99;

/** Partitions beside the union; answers of further ones are looked up in that, which is never wrong. */
const PARTITIONS = 64;

/** A client's state of one partition of the sketch. */
export interface Held {
	/** Its name; empty: the union of all. */
	readonly partition: string;
	/** The newest sketch, and when it was made; negative: there is none. */
	flat?: Sketch;
	made: number;
	loading?: Promise<void> | undefined;
	/** Set while a read waits for the first sketch; null afterwards. */
	first?: Promise<unknown> | null;
	/** Not loaded again before, by the monotonic clock; and how often in a row it could not be. */
	retryAt: number;
	failures: number;
}

export interface Known {
	readonly time: ServerTime;
	readonly parts: Map<string, Held>;
	/** The partition that an answer named last. */
	latest: string;
	/** The latest time that a sketch was made at. */
	made: number;
	/** Seconds that the server recommends for Δ; 0: it said nothing. */
	recommended: number;
	/** Sketches made before do not know of what was written, or, for causal reads, of what was read. */
	written: number;
	read: number;
	/** Answers sent until then count by another time, because the server's clock was set back. */
	again: number;
	/** Whether the server tells clients to leave everything to the network. */
	off: boolean;
	/** The state of a partition, or of the union in its place. */
	held(partition: string): Held;
}

/** Nothing yet. */
export const nothingKnown = (): Known => {
	const parts = new Map<string, Held>();
	const held = (partition: string): Held => {
		let found = parts.get(partition);
		if (!found) {
			if (partition && parts.size > PARTITIONS) return held("");
			found = { partition, made: -1, retryAt: 0, failures: 0 };
			parts.set(partition, found);
		}
		return found;
	};
	return {
		time: serverTime(),
		parts,
		latest: "",
		made: 0,
		recommended: 0,
		written: 0,
		read: 0,
		again: 0,
		off: false,
		held,
	};
};
