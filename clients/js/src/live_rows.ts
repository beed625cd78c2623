/** Rows of a followed result, kept by the messages of the server. */

/** A record, as JSON values. */
export type LiveRecord = Readonly<Record<string, unknown>>;

/** Kinds of changes. */
export type MatchType = "add" | "change" | "changeIndex" | "remove" | "match";

/** A `match` message. */
export interface Match {
	readonly matchType: MatchType;
	readonly operation: "insert" | "update" | "delete" | "none";
	readonly index?: number;
	readonly previousIndex?: number;
	readonly data?: LiveRecord;
	readonly before?: LiveRecord;
	readonly key?: unknown;
	readonly changes?: { readonly updated: LiveRecord; readonly removed: readonly string[] };
	readonly offset_token?: string;
}

/** Identity of a record: its `_id`, or `id` in the thesis' form, as text. */
export const keyOf = (record: LiveRecord): string => JSON.stringify(record["_id"] ?? record["id"]);

/** A message does not fit the rows: the result has to be read anew. */
export class OutOfStep extends Error {}

export class LiveRows {
	#keys: string[] = [];
	#records = new Map<string, LiveRecord>();

	/** The records, in order if the query has one. */
	records(): LiveRecord[] {
		return this.#keys.map((key) => this.#records.get(key) as LiveRecord);
	}

	/** Begin with these records. `keys`: their identities, if some are not their `_id`s. */
	replace(records: readonly LiveRecord[], keys?: readonly unknown[]): void {
		this.#keys = keys ? keys.map((key) => JSON.stringify(key)) : records.map(keyOf);
		this.#records = new Map(records.map((record, place) => [this.#keys[place] as string, record]));
	}

	/** Apply a `match` message. Throws OutOfStep if it does not fit. */
	apply(match: Match): void {
		const key = "key" in match ? JSON.stringify(match.key) : keyOf(match.data ?? {});
		const known = this.#records.get(key);
		const adds = match.matchType === "add";
		if ((known !== undefined) === adds) throw new OutOfStep(`${match.matchType} of ${key}`);
		let place = match.index;
		if (!adds && (match.matchType === "remove" || place !== undefined || match.previousIndex !== undefined)) {
			const before = match.previousIndex ?? this.#keys.indexOf(key);
			if (this.#keys[before] !== key) throw new OutOfStep(`${key} is not at ${before}`);
			this.#keys.splice(before, 1);
			place ??= before;
		}
		if (match.matchType === "remove") {
			this.#records.delete(key);
			return;
		}
		if (adds || place !== undefined) {
			place ??= this.#keys.length;
			if (place > this.#keys.length) throw new OutOfStep(`${key} to ${place}, behind the end`);
			this.#keys.splice(place, 0, key);
		}
		this.#records.set(key, match.data ?? changed(known ?? {}, match));
	}
}

const changed = (record: LiveRecord, { changes }: Match): LiveRecord => {
	const gone = new Set(changes?.removed);
	const kept = Object.entries(record).filter(([name]) => !gone.has(name));
	return { ...Object.fromEntries(kept), ...changes?.updated };
};
