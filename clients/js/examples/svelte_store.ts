/** A store for Svelte: `const tea = live(db.items.find({ tag: "tea" }))`, then `{#each $tea as item}`. */
import type { Followable, LiveRecord } from "quaestor-client/live";
import { type Readable, readable } from "svelte/store";

export const live = <T = LiveRecord>(query: Followable, failed?: (error: Error) => void): Readable<T[]> =>
	readable<T[]>([], (set) => {
		const subscription = query.resultStream((rows) => set(rows as T[]), failed);
		return () => subscription.unsubscribe();
	});
