/** Live queries: one WebSocket for any number of streams, opened again whenever it breaks off. */

import { LiveQuery } from "./live_query.ts";
import type { Carrier, LiveStream, Message } from "./live_streams.ts";

export { LiveQuery } from "./live_query.ts";
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

export interface LiveOptions {
	/** Credentials, or a function that gives the present ones before each connection. */
	readonly token?: string | (() => string | Promise<string>);
	/** ms between two signs of life. */
	readonly ping?: number;
	/** Longest pause before a new connection, in ms. */
	readonly longestPause?: number;
}

/** A collection. */
export interface Collection {
	/** All records, or those that pass a filter of MongoDB. */
	find(filter?: object): LiveQuery;
}

/** A connection to the endpoint, and a property for each collection. */
export type LiveDatabase = LiveConnection & { readonly [collection: string]: Collection };

const SHORTEST_PAUSE = 100;

/** The socket of a connection, which carries the streams. */
class Socket implements Carrier {
	token: LiveOptions["token"];
	#url: string;
	#options: LiveOptions;
	#streams = new Map<string, LiveStream<unknown>>();
	#socket: WebSocket | undefined;
	#ready = false;
	#failures = 0;
	#heard = 0;
	#pinging: ReturnType<typeof setInterval> | undefined;
	#retrying: ReturnType<typeof setTimeout> | undefined;
	#cut = false;

	constructor(url: string, options: LiveOptions) {
		this.#url = url;
		this.#options = options;
		this.token = options.token;
		if (typeof document === "undefined") return;
		for (const name of ["online", "pageshow"]) addEventListener(name, this.#awake);
		document.addEventListener("visibilitychange", this.#awake);
	}

	open(stream: LiveStream<unknown>): void {
		this.#streams.set(stream.id, stream);
		if (this.#ready) this.send(stream.request);
		else if (!this.#socket && !this.#retrying) this.#connect();
	}

	close(stream: LiveStream<unknown>): void {
		if (this.#streams.delete(stream.id)) this.send({ type: "unsubscribe", id: stream.id });
		if (!this.#streams.size) this.#leave();
	}

	renew(stream: LiveStream<unknown>): void {
		this.send({ type: "unsubscribe", id: stream.id });
		this.send(stream.request);
	}

	end(): void {
		const streams = [...this.#streams.values()];
		this.#streams.clear();
		for (const stream of streams) stream.lost(true);
		this.#leave();
		if (typeof document === "undefined") return;
		for (const name of ["online", "pageshow"]) removeEventListener(name, this.#awake);
		document.removeEventListener("visibilitychange", this.#awake);
	}

	cut(on: boolean): void {
		this.#cut = on;
		this.send({ type: "cut", on });
	}

	send(message: object): void {
		if (this.#ready && this.#socket?.readyState === 1) this.#socket.send(JSON.stringify(message));
	}

	#connect(): void {
		this.#retrying = undefined;
		const socket = new WebSocket(this.#url, ["quaestor.v1"]);
		this.#socket = socket;
		socket.onopen = async () => {
			const token = typeof this.token === "function" ? await this.token() : this.token;
			if (this.#socket !== socket) return;
			this.#ready = true;
			this.#failures = 0;
			this.#heard = Date.now();
			if (token !== undefined) this.send({ type: "token", token });
			if (this.#cut) this.send({ type: "cut", on: true });
			for (const stream of this.#streams.values()) this.send(stream.request);
			this.#pinging = setInterval(this.#ping, this.#every);
		};
		socket.onmessage = ({ data }) => {
			this.#heard = Date.now();
			const message = JSON.parse(data as string) as Message;
			const stream = this.#streams.get(message.id ?? "");
			if (message.type === "error" && stream) this.#streams.delete(stream.id);
			stream?.take(message);
		};
		socket.onclose = () => {
			if (this.#socket === socket) this.#broke();
		};
	}

	#broke(): void {
		this.#forget();
		for (const stream of [...this.#streams.values()]) if (!stream.lost()) this.#streams.delete(stream.id);
		if (!this.#streams.size) return;
		// Clients that lost one server come back spread over time.
		const most = Math.min(this.#options.longestPause ?? 10_000, SHORTEST_PAUSE * 2 ** ++this.#failures);
		this.#retrying = setTimeout(() => this.#connect(), most * Math.random());
	}

	#forget(): void {
		clearInterval(this.#pinging);
		this.#ready = false;
		this.#socket = undefined;
	}

	#leave(): void {
		const socket = this.#socket;
		clearTimeout(this.#retrying);
		this.#retrying = undefined;
		this.#forget();
		socket?.close();
	}

	get #every(): number {
		return this.#options.ping ?? 10_000;
	}

	#ping = (): void => {
		if (Date.now() - this.#heard > 3 * this.#every) this.#lose();
		else this.send({ type: "ping" });
	};

	/** A computer that slept, or a network that is back: a dead socket is replaced at once. */
	#awake = (): void => {
		if (this.#retrying) {
			clearTimeout(this.#retrying);
			this.#connect();
		} else if (this.#ready) this.#ping();
	};

	#lose(): void {
		const socket = this.#socket;
		if (!socket) return;
		socket.onclose = null;
		socket.close();
		this.#broke();
	}
}

export class LiveConnection {
	#socket: Socket;

	constructor(url: string | URL, options: LiveOptions = {}) {
		this.#socket = new Socket(String(url), options);
	}

	/** A collection by its name. */
	collection(name: string): Collection {
		return { find: (filter = {}) => new LiveQuery(this.#socket, name, { filter, sort: {} }) };
	}

	/** Send new credentials on the open socket. Equal rights resend nothing. */
	renewToken(token: string): void {
		this.#socket.token = token;
		this.#socket.send({ type: "token", token });
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
export const connect = (url: string | URL = home(), options: LiveOptions = {}): LiveDatabase => {
	const connection = new LiveConnection(socketUrl(url), options);
	return new Proxy(connection, {
		get(target, name) {
			const own = Reflect.get(target, name, target) as unknown;
			if (own !== undefined || typeof name !== "string") return typeof own === "function" ? own.bind(target) : own;
			return target.collection(name);
		},
	}) as LiveDatabase;
};
