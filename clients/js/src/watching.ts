/** Messages between clients of one browser, and watchers of a client. */

import type { Lifetime } from "./fields.ts";
import type { Known } from "./known.ts";

/** A message between clients of one browser. */
export type Said = "wrote" | "session" | "off";

/** A follower of an unbundled client's work. */
export interface Watcher {
	/** A reader was given an answer; `outdated`: since the request, there was a write, or the user changed. */
	read(url: URL, life: Lifetime, outdated: boolean): void;
	/** A sketch was loaded. */
	loaded(): void;
	/** This tab or another one said so. */
	heard(said: Said): void;
}

/** The events that a watcher receives. */
export interface Watched {
	readonly known: Known;
	/** Δ in ms. */
	bound(): number;
	/** Have a partition's sketch loaded if it is too old, or soon will be. */
	want(partition: string): void;
	/** Follow no more. */
	leave(): unknown;
}
