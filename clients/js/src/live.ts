/** Live queries: one WebSocket for any number of streams, opened again whenever it breaks off. */

import { type Collection, byName, collectionOf } from "./live_database.ts";
import type { LiveOptions } from "./live_options.ts";
import { Socket } from "./live_socket.ts";

export type { Collection } from "./live_database.ts";
export { type Collation, type Followable, LivePipeline, LiveQuery } from "./live_query.ts";
export type { LiveOptions } from "./live_options.ts";
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

/** A connection to the endpoint, and a property for each collection. */
export type LiveDatabase = LiveConnection & { readonly [collection: string]: Collection };

export class LiveConnection {
	#socket: Socket;

	constructor(url: string | URL, options: LiveOptions = {}) {
		this.#socket = new Socket(String(url), options);
	}

	/** A collection by its name. */
	collection(name: string): Collection {
		return collectionOf(this.#socket, name);
	}

	/** Go on with new credentials. Equal rights resend nothing. */
	renewToken(token: string): void {
		this.#socket.renewToken(token);
	}

	/** Let all streams advance together, from one cluster time to the next. */
	cut(on = true): void {
		this.#socket.cut(on);
	}

	/** End all streams and the socket. */
	close(): void {
		this.#socket.end();
	}
}

/** The endpoint that this module was loaded from: `/live` of `/live.js`. */
const home = (): string => import.meta.url.replace(/\.js(?:[?#].*)?$/, "");

/** The URL of a WebSocket, also of a path or an `https:` URL. */
const socketUrl = (url: string | URL): string => {
	const whole = new URL(url, typeof location === "undefined" ? undefined : location.href);
	whole.protocol = whole.protocol.replace("http", "ws");
	return whole.href;
};

/**
 * Connect to a `LiveQueries` endpoint: `const db = connect("wss://shop.example/live"); db.items.find({ tag: "tea" })`.
 *
 * A page that imports the module from the endpoint (`/live.js`) needs no URL.
 */
export const connect = (url: string | URL = home(), options: LiveOptions = {}): LiveDatabase =>
	byName(new LiveConnection(socketUrl(url), options));
