/** A collection of TanStack DB that follows a live query. Needs nothing of TanStack DB itself. */

import type { Followable } from "./live_query.ts";
import type { LiveRecord } from "./live_rows.ts";

/** The arguments that TanStack DB passes to the source of a collection. */
interface Sync<T> {
	begin: () => void;
	write: (change: { type: "insert" | "update" | "delete"; value: T }) => void;
	commit: () => unknown;
	markReady: () => void;
	markError: (error?: unknown) => void;
}

/** Options for `createCollection`. */
export interface LiveCollectionOptions<T extends object> {
	getKey: (record: T) => string | number;
	sync: { rowUpdateMode: "full"; sync: (sync: Sync<T>) => () => void };
}

/** The key of a record: its `_id` if this is text or a number, the hexadecimal digits of an ObjectId, otherwise Extended JSON as text. */
export const recordKey = (record: object): string | number => {
	const { _id: id } = record as { _id: unknown };
	if (typeof id === "string" || typeof id === "number") return id;
	const digits = (id as { $oid?: unknown } | null)?.$oid;
	return typeof digits === "string" ? digits : JSON.stringify(id);
};

/**
 * `createCollection(liveCollection<Item>(db.items.find({ tag: "tea" })))`. Each change of the result is one transaction.
 *
 * An error of the server puts the collection in its error state.
 */
export const liveCollection = <T extends object = LiveRecord>(query: Followable): LiveCollectionOptions<T> => ({
	getKey: recordKey,
	sync: {
		rowUpdateMode: "full",
		sync: ({ begin, write, commit, markReady, markError }) => {
			let shown = new Map<string | number, T>();
			const subscription = query.resultStream((rows) => {
				const before = shown;
				shown = new Map((rows as readonly object[] as readonly T[]).map((row) => [recordKey(row), row]));
				begin();
				for (const [key, value] of before) if (!shown.has(key)) write({ type: "delete", value });
				// Records without a change are the same objects.
				for (const [key, value] of shown) {
					if (!before.has(key)) write({ type: "insert", value });
					else if (before.get(key) !== value) write({ type: "update", value });
				}
				commit();
				markReady();
			}, markError);
			return () => subscription.unsubscribe();
		},
	},
});
