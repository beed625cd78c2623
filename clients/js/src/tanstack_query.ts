/** A query of TanStack Query that follows a live query while components show it. Needs nothing of TanStack Query itself. */

import type { Followable } from "./live_query.ts";
import type { LiveRecord } from "./live_rows.ts";

/** A query in the cache of TanStack Query. */
interface Cached {
	getObserversCount(): number;
	invalidate(): void;
}

/** The argument that TanStack Query passes to a `queryFn`. */
interface Asked {
	client: {
		getQueryCache(): {
			find(filters: { queryKey: readonly unknown[]; exact: boolean }): Cached | undefined;
			subscribe(listener: (event: { type: string; query: Cached }) => void): () => void;
		};
		setQueryData(queryKey: readonly unknown[], data: unknown): unknown;
		invalidateQueries(filters: { queryKey: readonly unknown[]; exact: boolean }): unknown;
	};
	queryKey: readonly unknown[];
	signal: AbortSignal;
}

/** Options for `useQuery`. */
export interface LiveQueryOptions<T> {
	queryKey: readonly unknown[];
	queryFn: (asked: Asked) => Promise<T[]>;
	staleTime: number;
}

/** Ends of the streams, by cached query. */
const followed = new WeakMap<Cached, () => void>();

/**
 * `useQuery(liveQuery<Item>(["tea"], db.items.find({ tag: "tea" })))`. The stream ends with the last component that shows the query.
 *
 * After an error of the server TanStack Query asks again, by its own rules.
 */
export const liveQuery = <T = LiveRecord>(queryKey: readonly unknown[], query: Followable): LiveQueryOptions<T> => ({
	queryKey,
	staleTime: Number.POSITIVE_INFINITY,
	queryFn: ({ client, signal }) =>
		new Promise((resolve, reject) => {
			const cache = client.getQueryCache();
			const own = cache.find({ queryKey, exact: true });
			let first = true;
			const subscription = query.resultStream(
				(rows) => {
					if (first) resolve(rows as T[]);
					else client.setQueryData(queryKey, rows);
					first = false;
				},
				(error) => {
					leave();
					reject(error);
					if (!first) void client.invalidateQueries({ queryKey, exact: true });
				},
			);
			const end = () => {
				leave();
				subscription.unsubscribe();
				reject(new Error("nothing shows the query any more"));
			};
			const leave = cache.subscribe(({ type, query: other }) => {
				if (other !== own || (type !== "removed" && (type !== "observerRemoved" || own.getObserversCount()))) return;
				end();
				// The next component asks anew.
				if (type !== "removed") own.invalidate();
			});
			if (!own) return;
			followed.get(own)?.();
			followed.set(own, end);
			signal.addEventListener("abort", () => first && end());
		}),
});
