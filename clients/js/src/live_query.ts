/** Queries: a builder, a plain filter, or a pipeline. Immutable: each step gives a new query. */

import type { LiveRecord } from "./live_rows.ts";
import {
	type Carrier,
	type Complete,
	type EventOptions,
	EventStream,
	type LiveError,
	type LiveEvent,
	type LiveGap,
	type Next,
	type OnError,
	ResultStream,
	type StreamOptions,
	type Subscription,
} from "./live_streams.ts";

interface Parts {
	readonly filter: object;
	readonly sort: LiveRecord;
	readonly offset?: number;
	readonly limit?: number;
	readonly collation?: Collation;
}

/** Rules by which strings compare, as MongoDB knows them. */
export interface Collation {
	readonly locale: string;
	readonly strength?: 1 | 2 | 3 | 4 | 5;
	readonly caseLevel?: boolean;
	readonly caseFirst?: "upper" | "lower" | "off";
	readonly numericOrdering?: boolean;
	readonly alternate?: "non-ignorable" | "shifted";
	readonly maxVariable?: "punct" | "space";
	readonly backwards?: boolean;
	readonly normalization?: boolean;
}

/** Extended JSON of dates and regular expressions; other values stay. */
const extended = (value: unknown): unknown => {
	if (value instanceof Date) return { $date: value.toISOString() };
	if (value instanceof RegExp) return { $regularExpression: { pattern: value.source, options: value.flags.replace(/[^imsx]/g, "") } };
	if (Array.isArray(value)) return value.map(extended);
	if (value && typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype)
		return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, extended(member)]));
	return value;
};

/** A query that can be followed. */
export abstract class Followable {
	#carrier: Carrier;

	constructor(carrier: Carrier) {
		this.#carrier = carrier;
	}

	/** Parts of a `subscribe` message that name the query. */
	protected abstract fields(): object;

	/** The present result, once. */
	resultList(): Promise<LiveRecord[]> {
		return new Promise((resolve, reject) => {
			const subscription = this.resultStream({ reconnect: 0 }).subscribe(
				(rows) => {
					resolve(rows);
					queueMicrotask(() => subscription.unsubscribe());
				},
				reject,
				() => reject(new Error("the connection was lost")),
			);
		});
	}

	/** Whole results: with callbacks a subscription, without an observable. */
	resultStream(options?: StreamOptions): ResultStream;
	resultStream(next: Next<LiveRecord[]>, error?: OnError, complete?: Complete): Subscription;
	resultStream(options: StreamOptions, next: Next<LiveRecord[]>, error?: OnError, complete?: Complete): Subscription;
	resultStream(first: StreamOptions | Next<LiveRecord[]> = {}, ...rest: unknown[]): ResultStream | Subscription {
		const [options, ...callbacks] = arranged<LiveRecord[]>(first, rest);
		const stream = new ResultStream(this.#carrier, { ...this.fields(), delta: true }, options);
		return callbacks[0] ? stream.subscribe(...callbacks) : stream;
	}

	/** Events: with callbacks a subscription, without an observable. */
	eventStream(options?: EventOptions): EventStream;
	eventStream(next: Next<LiveEvent | LiveGap>, error?: OnError, complete?: Complete): Subscription;
	eventStream(options: EventOptions, next: Next<LiveEvent | LiveGap>, error?: OnError, complete?: Complete): Subscription;
	eventStream(first: EventOptions | Next<LiveEvent | LiveGap> = {}, ...rest: unknown[]): EventStream | Subscription {
		const [options, ...callbacks] = arranged<LiveEvent | LiveGap>(first, rest);
		const { matchTypes = ["all"], operations = ["any"], initial = true, beforeImages = false } = options as EventOptions;
		const fields = { ...this.fields(), matchTypes, operations, initial, beforeImages };
		const stream = new EventStream(this.#carrier, fields, options);
		return callbacks[0] ? stream.subscribe(...callbacks) : stream;
	}
}

export class LiveQuery extends Followable {
	#carrier: Carrier;
	#collection: string;
	#parts: Parts;

	constructor(carrier: Carrier, collection: string, parts: Parts) {
		super(carrier);
		this.#carrier = carrier;
		this.#collection = collection;
		this.#parts = parts;
	}

	/** Records whose field has this value. */
	equal(field: string, value: unknown): LiveQuery {
		return this.where({ [field]: { $eq: value } });
	}

	/** Records whose field matches the expression. */
	matches(field: string, expression: RegExp): LiveQuery {
		return this.where({ [field]: expression });
	}

	/** Records that pass this filter of MongoDB too. */
	where(filter: object): LiveQuery {
		const before = this.#parts.filter;
		return this.#with({ filter: Object.keys(before).length ? { $and: [before, filter] } : filter });
	}

	ascending(field: string): LiveQuery {
		return this.#with({ sort: { ...this.#parts.sort, [field]: 1 } });
	}

	descending(field: string): LiveQuery {
		return this.#with({ sort: { ...this.#parts.sort, [field]: -1 } });
	}

	sort(sort: Readonly<Record<string, 1 | -1>>): LiveQuery {
		return this.#with({ sort });
	}

	offset(offset: number): LiveQuery {
		return this.#with({ offset });
	}

	limit(limit: number): LiveQuery {
		return this.#with({ limit });
	}

	/** Compare strings by these rules. */
	collation(collation: Collation): LiveQuery {
		return this.#with({ collation });
	}

	protected fields(): object {
		const { filter, sort, ...others } = this.#parts;
		return {
			bucket: this.#collection,
			query: JSON.stringify(extended(filter)),
			...(Object.keys(sort).length && { sort: JSON.stringify(sort) }),
			...others,
		};
	}

	#with(parts: Partial<Parts>): LiveQuery {
		return new LiveQuery(this.#carrier, this.#collection, { ...this.#parts, ...parts });
	}
}

/** An aggregation. The endpoint has to permit pipelines. */
export class LivePipeline extends Followable {
	#fields: object;

	constructor(carrier: Carrier, collection: string, stages: readonly object[], collation?: Collation) {
		super(carrier);
		this.#fields = { bucket: collection, pipeline: JSON.stringify(extended(stages)), ...(collation && { collation }) };
	}

	protected fields(): object {
		return this.#fields;
	}
}

type Arranged<T> = [StreamOptions, Next<T>?, ((error: LiveError) => void)?, Complete?];

const arranged = <T>(first: unknown, rest: unknown[]): Arranged<T> =>
	(typeof first === "function" ? [{}, first, ...rest] : [first, ...rest]) as Arranged<T>;
