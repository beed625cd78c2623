/** Streams of a followed query: whole results, or events. Observables and async iterables that outlive the socket. */

import { type LiveRecord, LiveRows, type Match, type MatchType, OutOfStep } from "./live_rows.ts";

/** A message of the server about one subscription. */
export interface Message extends Partial<Match> {
	readonly id: string | null;
	readonly type: string;
	readonly since?: string;
	readonly reason?: string;
	readonly error?: { readonly message: string; readonly status: number; readonly reason: string };
}

/** A `result` message. */
interface Result {
	readonly data?: LiveRecord[];
	readonly keys?: readonly unknown[];
}

/** An error of the server: it ends the stream. */
export class LiveError extends Error {
	/** HTTP status. */
	readonly status: number;
	readonly reason: string;

	constructor(message: string, status: number, reason: string) {
		super(message);
		this.name = "LiveError";
		this.status = status;
		this.reason = reason;
	}
}

/** A change of a result. */
export interface LiveEvent {
	readonly matchType: MatchType;
	readonly operation: "insert" | "update" | "delete" | "none";
	readonly data: LiveRecord;
	readonly before?: LiveRecord;
	readonly index?: number;
	readonly previousIndex?: number;
	/** The record belongs to the first result. */
	readonly initial: boolean;
}

/** Changes between the event before and the one after are not known one by one. */
export interface LiveGap {
	readonly gap: string;
	/** The result behind the gap, if the stream asked for the first one. */
	readonly data?: readonly LiveRecord[];
}

export interface Subscription {
	unsubscribe(): void;
}

export type Next<T> = (item: T) => void;
export type OnError = (error: LiveError) => void;
export type Complete = () => void;

interface Observer<T> {
	readonly next?: Next<T> | undefined;
	readonly error?: OnError | undefined;
	readonly complete?: Complete | undefined;
}

/** Options of both kinds of streams. */
export interface StreamOptions {
	/** Connections after the first; negative: any number. An error that may pass counts as a lost connection. */
	readonly reconnect?: number;
	/** ms between two updates of one record, at least; negative: off. */
	readonly collapse?: number;
	/** ms between two readings of a result that the server reads again, at least; 0: as the server does. */
	readonly poll?: number;
	/** Ends the stream. */
	readonly signal?: AbortSignal;
}

/** The part of a socket that a stream needs. */
export interface Carrier {
	open(stream: LiveStream<unknown>): void;
	close(stream: LiveStream<unknown>): void;
	renew(stream: LiveStream<unknown>): void;
}

const observable = (Symbol as unknown as { observable?: symbol }).observable ?? "@@observable";

export abstract class LiveStream<T> implements AsyncIterable<T> {
	readonly id: string = crypto.randomUUID();
	/** Since when the result may be outdated; undefined: it is up to date. */
	staleSince: string | undefined;
	/** @internal Errors in a row that may pass. */
	refusals = 0;
	#fields: object;
	#carrier: Carrier;
	#reconnects: number;
	#observers = new Set<Observer<T>>();
	#open = false;
	#token: string | undefined;

	constructor(carrier: Carrier, fields: object, { reconnect = -1, collapse = -1, poll = 0, signal }: StreamOptions) {
		this.#carrier = carrier;
		this.#fields = { ...fields, collapse, poll };
		this.#reconnects = reconnect;
		signal?.addEventListener("abort", () => this.#end(undefined, true));
	}

	/** The message that begins the subscription, or goes on behind the newest event. */
	get request(): object {
		const token = this.#token === undefined ? {} : { offset_token: this.#token };
		return { type: "subscribe", id: this.id, ...this.#fields, ...token };
	}

	/** Follow the stream. The first subscriber opens it, and the last one that leaves ends it. */
	subscribe(next?: Next<T> | Observer<T>, error?: OnError, complete?: Complete): Subscription {
		const observer: Observer<T> = typeof next === "object" ? next : { next, error, complete };
		this.#observers.add(observer);
		if (!this.#open) {
			this.#open = true;
			this.#carrier.open(this as LiveStream<unknown>);
		}
		return {
			unsubscribe: () => {
				if (this.#observers.delete(observer) && !this.#observers.size) this.#end(undefined, true);
			},
		};
	}

	async *[Symbol.asyncIterator](): AsyncGenerator<T, void> {
		const items: T[] = [];
		let ended = false;
		let failure: LiveError | undefined;
		let wake = () => {};
		const subscription = this.subscribe(
			(item) => {
				this.keep(items, item);
				wake();
			},
			(error) => {
				failure = error;
				wake();
			},
			() => {
				ended = true;
				wake();
			},
		);
		try {
			for (;;) {
				while (items.length) yield items.shift() as T;
				if (failure) throw failure;
				if (ended) return;
				await new Promise<void>((resolve) => {
					wake = resolve;
				});
			}
		} finally {
			subscription.unsubscribe();
		}
	}

	/** @internal Whether the stream may connect once more. */
	again(): boolean {
		if (this.#reconnects === 0) return false;
		if (this.#reconnects > 0) this.#reconnects--;
		return true;
	}

	/** @internal The socket broke off. Returns whether the stream goes on with the next one; `final`: there is none. */
	lost(final = false): boolean {
		if (!final && this.again()) return true;
		this.#end(undefined, false);
		return false;
	}

	/** @internal `held`: `settle` and `show` follow later. */
	take(message: Message, held = false): void {
		try {
			if (message.type === "result") this.begin(message as unknown as Result);
			else if (message.type === "match") this.change(message as Match);
			else if (message.type === "refreshed") this.refresh(message.reason ?? "");
			else if (message.type === "stale" || message.type === "fresh") this.staleSince = message.since;
			else if (message.type === "error" && message.error) {
				const { message: text, status, reason } = message.error;
				this.#end(new LiveError(text, status, reason), false);
			}
		} catch (error) {
			if (!(error instanceof OutOfStep)) throw error;
			this.#token = undefined;
			this.drop();
			this.#carrier.renew(this as LiveStream<unknown>);
			return;
		}
		this.#token = message.offset_token ?? this.#token;
		if (held) return;
		this.settle();
		this.show();
	}

	/** @internal Make the messages so far the state that `show` shows. */
	settle(): void {}

	/** @internal Give the observers what is new. */
	abstract show(): void;

	/** Put an item behind the other items that wait for an iterator. */
	protected keep(items: T[], item: T): void {
		items.push(item);
	}

	protected emit(item: T): void {
		for (const { next } of [...this.#observers]) next?.(item);
	}

	protected abstract begin(result: Result): void;
	protected abstract change(match: Match): void;
	protected refresh(_reason: string): void {}
	/** The state is broken: show nothing of it. */
	protected drop(): void {}

	#end(error: LiveError | undefined, leave: boolean): void {
		if (!this.#open) return;
		this.#open = false;
		if (leave) this.#carrier.close(this as LiveStream<unknown>);
		const observers = [...this.#observers];
		this.#observers.clear();
		for (const observer of observers) error ? observer.error?.(error) : observer.complete?.();
	}
}
Object.defineProperty(LiveStream.prototype, observable, {
	value(this: unknown) {
		return this;
	},
});

/** Whole results: only deltas cross the wire. */
export class ResultStream extends LiveStream<LiveRecord[]> {
	#rows = new LiveRows();
	#latest: LiveRecord[] | undefined;
	#news = false;

	/** The present result, the same array until the next one; undefined before the first one. */
	latest(): LiveRecord[] | undefined {
		return this.#latest;
	}

	/** Only the newest result waits for an iterator. */
	protected override keep(items: LiveRecord[][], item: LiveRecord[]): void {
		items.splice(0, items.length, item);
	}

	protected begin({ data, keys }: Result): void {
		this.#rows.replace(data ?? [], keys);
		this.#news = true;
	}

	protected change(match: Match): void {
		this.#rows.apply(match);
		// A token with more parts stands inside a change, whose other events follow.
		if ((match.offset_token ?? "").split("/").length <= 2) this.#news = true;
	}

	protected override drop(): void {
		this.#news = false;
	}

	override settle(): void {
		if (this.#news) this.#latest = this.#rows.records();
	}

	show(): void {
		if (!this.#news || !this.#latest) return;
		this.#news = false;
		this.emit(this.#latest);
	}
}

/** Options of an event stream. */
export interface EventOptions extends StreamOptions {
	readonly matchTypes?: readonly (MatchType | "all")[];
	readonly operations?: readonly ("any" | "insert" | "update" | "delete" | "none")[];
	readonly initial?: boolean;
	readonly beforeImages?: boolean;
}

/** Events, each once and in order; a LiveGap stands where some are not known. */
export class EventStream extends LiveStream<LiveEvent | LiveGap> {
	#gap: string | undefined;
	#items: (LiveEvent | LiveGap)[] = [];

	protected begin({ data }: Result): void {
		if (this.#gap !== undefined) {
			this.#items.push(data ? { gap: this.#gap, data } : { gap: this.#gap });
			this.#gap = undefined;
			return;
		}
		for (const record of data ?? []) this.#items.push({ matchType: "add", operation: "none", data: record, initial: true });
	}

	protected change({ matchType, operation, data, before, index, previousIndex }: Match): void {
		this.#items.push({
			matchType,
			operation,
			data: data ?? {},
			initial: false,
			...(before && { before }),
			...(index !== undefined && { index }),
			...(previousIndex !== undefined && { previousIndex }),
		});
	}

	protected override refresh(reason: string): void {
		this.#gap = reason;
	}

	show(): void {
		for (const item of this.#items.splice(0)) this.emit(item);
	}
}
