/** What clients of one browser tell each other, and those who follow a client. */

import type { Lifetime } from "./fields.ts";
import type { Known } from "./known.ts";

/** What clients of one browser tell each other. */
export type Said = "wrote" | "session" | "off";

/** Who follows what an unbundled client does. */
export interface Watcher {
	/** A reader was given an answer; `outdated`: somebody wrote, or the user changed, since it was asked for. */
	read(url: URL, life: Lifetime, outdated: boolean): void;
	/** A sketch was loaded. */
	loaded(): void;
	/** This tab or another one said so. */
	heard(said: Said): void;
}

/** What a watcher is given. */
export interface Watched {
	readonly known: Known;
	/** Δ in ms. */
	bound(): number;
	/** Have a partition's sketch loaded if it is too old, or soon will be. */
	want(partition: string): void;
	/** Follow no more. */
	leave(): unknown;
}
