/** What a client knows of the server. Times are the server's, in ms since the epoch. */

import { serverTime } from "./server_time.ts";
import type { Sketch } from "./sketch.ts";

/** Partitions beside the union; answers of further ones are looked up in that, which is never wrong. */
const PARTITIONS = 64;

/** What a client holds of one partition of the sketch. */
export interface Held {
	/** Its name; empty: the union of all. */
	readonly partition: string;
	/** The newest sketch, and when it was made; negative: there is none. */
	sketch?: Sketch;
	made: number;
	loading?: Promise<void> | undefined;
	/** While the first one that somebody needed is waited for; null afterwards. */
	first?: Promise<unknown> | null;
	/** Not loaded again before, by the monotonic clock; and how often in a row it could not be. */
	retryAt: number;
	failures: number;
}

export class Known {
	readonly time = serverTime();
	readonly parts = new Map<string, Held>();
	/** The partition that an answer named last. */
	latest = "";
	/** The latest time that a sketch was made at. */
	made = 0;
	/** Seconds that the server recommends for Δ; 0: it said nothing. */
	recommended = 0;
	/** Sketches made before do not know of what was written, or, for causal reads, of what was read. */
	written = 0;
	read = 0;
	/** When the present user's session began, as far as this client knows. */
	session = 0;
	/** Answers sent until then count by another time, because the server's clock was set back. */
	again = 0;
	/** Whether clients are told to leave everything to the network. */
	off = false;

	/** What is held of a partition, or of the union in its place. */
	held(partition: string): Held {
		let held = this.parts.get(partition);
		if (!held) {
			if (partition && this.parts.size > PARTITIONS) return this.held("");
			held = { partition, made: -1, retryAt: 0, failures: 0 };
			this.parts.set(partition, held);
		}
		return held;
	}
}
