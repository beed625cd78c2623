/** One live query over HTTP: requests from one position to the next, through caches that may be wrong. */

import { AGAIN, pauseAfter } from "./live_pauses.ts";
import type { Match } from "./live_rows.ts";
import type { LiveStream, Message } from "./live_streams.ts";

export interface HttpOptions {
	/** Credentials, or a function that gives the present ones before each request, and once more after a 401. */
	readonly token?: string | (() => string | Promise<string>);
	/** Longest pause before a new request after a failure, in ms. */
	readonly longestPause?: number;
	/** In place of the global one, for example to send cookies to another origin. */
	readonly fetch?: (url: string, options: RequestInit) => Promise<Response>;
}

type Parameters = Readonly<Record<string, string>>;

/** An answer: a snapshot (`data`), or changes. */
interface Body {
	readonly for: Parameters;
	readonly next: string;
	readonly epoch: string;
	readonly offset: number;
	readonly data?: unknown[];
	readonly keys?: unknown[];
	readonly changes?: Match[];
	readonly up_to_date?: boolean;
	readonly detail?: string;
}

/** The server holds a poll for 30 s at most. */
const PATIENCE_MS = 60_000;
/** Times that the server may not know the position before the client gives up, without a change in between. */
const MOST_GONE = 5;
const GONE = 409;
const UNAUTHORIZED = 401;
/** The token of a position inside a chunk: only behind its last change the result is shown. */
const INSIDE = "///";

/** The answer is not for the request: a proxy has changed the request, or kept another answer. */
class Unsuitable extends Error {}

/** The server refuses the query. */
class Refused extends Error {
	readonly status: number;

	constructor(message: string, status: number) {
		super(message);
		this.status = status;
	}
}

export class Polling {
	#url: string;
	#stream: LiveStream<unknown>;
	#options: HttpOptions;
	#request: Record<string, unknown>;
	#first: string;
	#next: string;
	#known = false;
	#gone = 0;
	#failures = 0;
	#ending = new AbortController();
	#hurry = new AbortController();

	constructor(url: string, stream: LiveStream<unknown>, options: HttpOptions) {
		this.#stream = stream;
		this.#options = options;
		const request = (this.#request = stream.request as Record<string, unknown>);
		const { bucket, query, sort, offset: skip, limit, pipeline, collation, poll } = request;
		const given = { query: pipeline ? undefined : query, sort, skip, limit, pipeline, collation: collation && JSON.stringify(collation), poll: poll || undefined };
		this.#url = `${url}/${encodeURIComponent(bucket as string)}`;
		this.#first = this.#next = written(Object.entries(given).filter(([, value]) => value !== undefined));
	}

	/** Follow the query until the stream ends. */
	async run(): Promise<void> {
		this.#listen((name, listener) => window.addEventListener(name, listener));
		try {
			if (this.#request["beforeImages"]) throw new Refused("beforeImages needs a socket", 400);
			while (!this.#ending.signal.aborted) await this.#step();
		} catch (error) {
			if (this.#ending.signal.aborted) return;
			const status = error instanceof Refused ? error.status : 502;
			const message = error instanceof Error ? error.message : String(error);
			this.#take({ type: "error", error: { message, status, reason: error instanceof Refused ? "refused" : "proxy" } });
		} finally {
			this.#ending.abort();
			this.#listen((name, listener) => window.removeEventListener(name, listener));
		}
	}

	/** End the requests. */
	end(): void {
		this.#ending.abort();
	}

	/** Begin with a new snapshot. */
	restart(): void {
		this.#gone++;
		this.#next = this.#first;
	}

	async #step(): Promise<void> {
		const body = await this.#suitable();
		if (!body || this.#ending.signal.aborted) return;
		if (this.#gone > MOST_GONE) throw new Error(`${this.#url} does not know the position of its own snapshots; look for a cache that keeps 409`);
		this.#next = body.next;
		if (body.data) this.#begin(body);
		else if (!body.changes) this.#gone++;
		else this.#change(body.changes);
	}

	#begin({ data, keys }: Body): void {
		if (this.#known) this.#take({ type: "refreshed", reason: "the server does not keep the changes" });
		this.#known = true;
		const shown = this.#request["initial"] === false ? {} : { data, ...(keys && { keys }) };
		this.#take({ type: "result", ...shown } as Partial<Message> & { type: string });
	}

	#change(changes: readonly Match[]): void {
		if (changes.length) this.#gone = 0;
		const next = this.#next;
		for (const [place, change] of changes.entries()) {
			const matchType = this.#wanted(change);
			if (!matchType) continue;
			this.#take({ ...change, type: "match", matchType, offset_token: place < changes.length - 1 ? INSIDE : "" });
			if (this.#ending.signal.aborted || this.#next !== next) return;
		}
	}

	/** The match type as the stream wants it; undefined: the stream does not want the event. */
	#wanted({ matchType, operation }: Match): Match["matchType"] | undefined {
		const { matchTypes = ["all"], operations = ["any"] } = this.#request as Record<string, string[]>;
		if (!operations.includes("any") && !operations.includes(operation)) return undefined;
		if (matchTypes.includes("all") || matchTypes.includes(matchType)) return matchType;
		return matchTypes.includes("match") && matchType !== "remove" ? "match" : undefined;
	}

	#take(message: Partial<Message> & { readonly type: string }): void {
		this.#stream.take({ id: this.#stream.id, ...message });
	}

	/** The answer to the next request. A wrong one is asked for once more, around all caches. Undefined: the stream has ended. */
	async #suitable(): Promise<Body | undefined> {
		for (let retry = this.#gone > 1; ; retry = true) {
			try {
				return await this.#asked(retry ? changed(this.#next, [], { retry: crypto.randomUUID() }) : this.#next);
			} catch (error) {
				if (!(error instanceof Unsuitable)) throw error;
				if (retry)
					throw new Error(
						`${this.#url} answered another request: ${error.message}. Let the proxies in front pass the query string on, and keep no answer longer than its Cache-Control allows`,
					);
			}
		}
	}

	/** The answer to a request. Tries until the server answers, or the stream has ended. */
	async #asked(first: string): Promise<Body | undefined> {
		let renewable = typeof this.#options.token === "function";
		for (let url = first; ; url = changed(url, ["live", "cursor"])) {
			let response: Response | undefined;
			let text = "";
			this.#hurry = new AbortController();
			try {
				response = await this.#fetch(this.#url + url, AbortSignal.any([this.#ending.signal, this.#hurry.signal, AbortSignal.timeout(PATIENCE_MS)]));
				text = await response.text();
			} catch {
				if (this.#ending.signal.aborted) return undefined;
				if (this.#hurry.signal.aborted) continue;
				response = undefined;
			}
			if (response?.status === UNAUTHORIZED && renewable) {
				// The token may have ended during a long poll. A second refusal is final.
				renewable = false;
				continue;
			}
			if (response && !AGAIN.has(response.status)) {
				this.#failures = 0;
				return checked(url, response.status, text);
			}
			if (!this.#stream.lost()) this.end();
			if (this.#ending.signal.aborted) return undefined;
			await this.#pause(Number(response?.headers.get("retry-after")) || 0);
		}
	}

	async #fetch(url: string, signal: AbortSignal): Promise<Response> {
		const { token, fetch: own = fetch } = this.#options;
		const present = typeof token === "function" ? await token() : token;
		return own(url, { signal, redirect: "manual", ...(present !== undefined && { headers: { authorization: `Bearer ${present}` } }) });
	}

	#pause(seconds: number): Promise<void> {
		const pause = pauseAfter(++this.#failures, this.#options.longestPause);
		return new Promise((resolve) => {
			const timer = setTimeout(resolve, seconds * 1_000 + pause);
			const wake = () => {
				clearTimeout(timer);
				resolve();
			};
			for (const { signal } of [this.#ending, this.#hurry]) signal.addEventListener("abort", wake);
		});
	}

	/** The network or the page is back: a request that was under way may never be answered. */
	#awake = (event: Event): void => {
		if ((event as PageTransitionEvent).persisted !== false) this.#hurry.abort();
	};

	#listen(act: (name: string, listener: (event: Event) => void) => void): void {
		if (typeof document !== "undefined") for (const name of ["online", "pageshow"]) act(name, this.#awake);
	}
}

/** The answer, if it is for this request and leads on. */
const checked = (url: string, status: number, text: string): Body => {
	let body: Body;
	try {
		body = JSON.parse(text) as Body;
	} catch {
		throw new Unsuitable(`status ${status} without a JSON object`);
	}
	if (status !== 200 && status !== GONE) {
		if (status >= 400) throw new Refused(body.detail ?? `status ${status}`, status);
		throw new Unsuitable(`status ${status} and no result`);
	}
	const sent = parameters(url);
	if (!same(body.for, sent)) throw new Unsuitable(`it is for ${JSON.stringify(body.for)?.slice(0, 200)}, not for ${JSON.stringify(sent).slice(0, 200)}`);
	if (typeof body.next !== "string" || same(parameters(body.next), sent)) throw new Unsuitable("its `next` does not lead on");
	if (status === 200 && !advances(sent, body)) throw new Unsuitable(`it does not advance behind offset ${sent["offset"]}`);
	return body;
};

/** Whether a 200 is a snapshot of the wanted epoch, or leads to a later position, or ends a wait. */
const advances = ({ epoch, offset }: Parameters, body: Body): boolean => {
	if (offset === undefined) return Array.isArray(body.data) && (epoch === undefined || epoch === body.epoch);
	if (!Array.isArray(body.changes) || !Number.isInteger(body.offset)) return false;
	const same = body.epoch === epoch;
	if (body.up_to_date) return same && body.offset === Number(offset);
	return same ? body.offset > Number(offset) : body.epoch > (epoch as string);
};

const parameters = (url: string): Parameters => Object.fromEntries(new URLSearchParams(url));

const same = (one: Parameters | undefined, other: Parameters): boolean => {
	const names = Object.keys(other);
	return !!one && Object.keys(one).length === names.length && names.every((name) => one[name] === other[name]);
};

const written = (pairs: [string, unknown][]): string => `?${new URLSearchParams(pairs.map(([name, value]) => [name, String(value)]))}`;

/** The URL with other parameters. */
const changed = (url: string, without: readonly string[], more: Parameters = {}): string =>
	written([...Object.entries(parameters(url)).filter(([name]) => !without.includes(name)), ...Object.entries(more)]);
