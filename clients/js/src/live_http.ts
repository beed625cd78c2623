/** Live queries over HTTP: snapshots, chunks and long polls, which CDNs carry. The streams are those of a socket. */

import { type Collection, byName, collectionOf } from "./live_database.ts";
import { type HttpOptions, Polling } from "./live_polling.ts";
import type { Carrier, LiveStream } from "./live_streams.ts";

export type { Collection } from "./live_database.ts";
export type { HttpOptions } from "./live_polling.ts";
export { type Collation, type Followable, LivePipeline, LiveQuery } from "./live_query.ts";
export type { LiveRecord, MatchType } from "./live_rows.ts";
export {
	type EventOptions,
	EventStream,
	LiveError,
	type LiveEvent,
	type LiveGap,
	ResultStream,
	type StreamOptions,
	type Subscription,
} from "./live_streams.ts";

/** The endpoint, and a property for each collection. */
export type HttpDatabase = HttpConnection & { readonly [collection: string]: Collection };

/** One long poll for each stream. */
class Polls implements Carrier {
	#url: string;
	#options: HttpOptions;
	#polls = new Map<LiveStream<unknown>, Polling>();

	constructor(url: string, options: HttpOptions) {
		this.#url = url;
		this.#options = options;
	}

	open(stream: LiveStream<unknown>): void {
		const polling = new Polling(this.#url, stream, this.#options);
		this.#polls.set(stream, polling);
		void polling.run().then(() => this.#polls.get(stream) === polling && this.#polls.delete(stream));
	}

	close(stream: LiveStream<unknown>): void {
		this.#polls.get(stream)?.end();
		this.#polls.delete(stream);
	}

	renew(stream: LiveStream<unknown>): void {
		this.#polls.get(stream)?.restart();
	}

	end(): void {
		for (const stream of [...this.#polls.keys()]) {
			this.close(stream);
			stream.lost(true);
		}
	}
}

export class HttpConnection {
	#polls: Polls;

	constructor(url: string | URL, options: HttpOptions = {}) {
		this.#polls = new Polls(String(url).replace(/\/+$/, ""), options);
	}

	/** A collection by its name. */
	collection(name: string): Collection {
		return collectionOf(this.#polls, name);
	}

	/** End all streams. */
	close(): void {
		this.#polls.end();
	}
}

/** The endpoint that this module was loaded from: `/live` of `/live.http.js`. */
const home = (): string => import.meta.url.replace(/\.http\.js(?:[?#].*)?$/, "");

/**
 * Follow queries of a `LiveQueries` endpoint over HTTP: `const db = connect("https://shop.example/live"); db.items.find()`.
 *
 * A page that imports the module from the endpoint (`/live.http.js`) needs no URL.
 */
export const connect = (url: string | URL = home(), options: HttpOptions = {}): HttpDatabase =>
	byName(new HttpConnection(url, options));
