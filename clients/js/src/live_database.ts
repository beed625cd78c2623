/** Collections by their names. */

import { type Collation, LivePipeline, LiveQuery } from "./live_query.ts";
import type { Carrier } from "./live_streams.ts";

/** A collection. */
export interface Collection {
	/** All records, or the records that pass a filter of MongoDB. */
	find(filter?: object): LiveQuery;
	/** The rows of a pipeline of MongoDB. */
	aggregate(pipeline: readonly object[], options?: { readonly collation?: Collation }): LivePipeline;
}

/** A collection whose queries one carrier follows. */
export const collectionOf = (carrier: Carrier, name: string): Collection => ({
	find: (filter = {}) => new LiveQuery(carrier, name, { filter, sort: {} }),
	aggregate: (pipeline, { collation } = {}) => new LivePipeline(carrier, name, pipeline, collation),
});

/** The connection, with a property for each collection. */
export const byName = <T extends { collection(name: string): Collection }>(
	connection: T,
): T & { readonly [collection: string]: Collection } =>
	new Proxy(connection, {
		get(target, name) {
			const own = Reflect.get(target, name, target) as unknown;
			if (own !== undefined || typeof name !== "string") return typeof own === "function" ? own.bind(target) : own;
			return target.collection(name);
		},
	}) as T & { readonly [collection: string]: Collection };
