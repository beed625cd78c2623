/**
 * Reads through the copies that a page, its browser and the caches on the way hold, none staler than Δ.
 *
 * A copy is used while its lifetime (`Quaestor-TTL`) is not over, the Cache Sketch is younger than Δ, and the sketch does not name it or
 * was made before the copy was sent. Whatever is missing, late or malformed, the copy is revalidated with the server: nothing
 * stale is used, and nothing is thrown that `fetch` would not have thrown. All times are the server's, in ms since the epoch.
 */

import { Copies, type Copy, lifetime } from "./copies.ts";
import { resource } from "./resource.ts";
import { ServerTime } from "./server_time.ts";
import type { Sketch } from "./sketch.ts";
import { load } from "./sketch_loader.ts";

const SECOND = 1000;

/** The freshness that an answer has to have. */
export interface Level {
	/** Seconds that an answer may lag behind the database; 0: it is always asked for. Default 60. */
	delta?: number;
	/** Whether what this client has written is seen by its next reads. Default true. */
	readYourWrites?: boolean;
	/** Whether an answer is never older than the one before it, of the same URL. Default true. */
	monotonicReads?: boolean;
	/** Whether all answers are as new as the newest that this client was given. Default false. */
	causal?: boolean;
}

export interface Options extends Level {
	/** Where the Cache Sketch is served. Default `/quaestor/sketch`. */
	sketch?: string;
	/** Whether a URL of the page's origin is asked for this way. Default: all are. */
	handles?: (url: URL) => boolean;
	/** Bytes of answers kept in memory. Default 10,000,000. */
	memory?: number;
	/** What sends requests. Default: the global `fetch`. */
	fetch?: typeof fetch;
}

export interface Init extends RequestInit {
	/** The freshness of this one answer; "strong": from the server, past every copy. */
	level?: Level | "strong";
}

/** What the client did, counted since it was made. */
export interface Counts {
	/** Answers from the page's memory. */
	memory: number;
	/** Answers from the browser's cache or, where that had none, from the network. */
	cache: number;
	/** Answers that were asked of the server because a copy might be stale, or no sketch was there to tell. */
	revalidated: number;
	/** Requests that the client let pass. */
	passed: number;
	/** Sketches loaded. */
	sketches: number;
	/** Sketches that could not be relied on. */
	refused: number;
}

interface Said {
	session?: true;
	written?: number;
	off?: true;
}

export class Client {
	readonly counts: Counts = { memory: 0, cache: 0, revalidated: 0, passed: 0, sketches: 0, refused: 0 };
	readonly #options: Required<Options>;
	readonly #tabs = new BroadcastChannel("quaestor");
	readonly #time = new ServerTime();
	readonly #copies: Copies;
	/** Names that come without a lifetime: the browser's own rules are theirs. */
	readonly #others = new Set<string>();
	#sketch: Sketch | undefined;
	#made = 0;
	#loading: Promise<void> | undefined;
	#retryAt = 0;
	/** Sketches made before do not know of what this client wrote, or, for causal reads, of what it has read. */
	#written = 0;
	#read = 0;
	/** Whether something was written before the server's time was known. */
	#undated = false;
	/** When the present user's session began, as far as this client knows. */
	#session = 0;
	#off = false;
	#warned = false;

	constructor(options: Options = {}) {
		this.#options = {
			sketch: "/quaestor/sketch",
			delta: 60,
			readYourWrites: true,
			monotonicReads: true,
			causal: false,
			handles: () => true,
			memory: 10_000_000,
			fetch: (input, init) => fetch(input, init),
			...options,
		};
		this.#copies = new Copies(this.#options.memory);
		this.#tabs.onmessage = ({ data }: MessageEvent<Said>) => this.#hear(data);
	}

	/** As the global `fetch`, with one option more: `level`. */
	readonly fetch = async (input: RequestInfo | URL, init: Init = {}): Promise<Response> => {
		const { level, ...rest } = init;
		const request = new Request(input, rest);
		if (request.method !== "GET" && request.method !== "HEAD") return this.#write(request);
		const url = new URL(request.url);
		if (this.#off || !this.#ours(request, url)) {
			this.counts.passed++;
			return this.#options.fetch(request);
		}
		return this.#get(request, url, level);
	};

	/** Forget the answers that were made for one user, in all tabs: call it when somebody has logged in. */
	login(): void {
		this.#say({ session: true });
	}

	/** Forget the answers that were made for one user, in all tabs: call it when somebody has logged out. */
	logout(): void {
		this.#say({ session: true });
	}

	/** Load the sketch now. */
	refresh(): Promise<void> {
		this.#loading ??= this.#load().finally(() => {
			this.#loading = undefined;
		});
		return this.#loading;
	}

	/** Stop listening to the other tabs. */
	close(): void {
		this.#tabs.close();
	}

	#ours(request: Request, url: URL): boolean {
		return (
			request.method === "GET" &&
			url.origin === location.origin &&
			(request.mode === "cors" || request.mode === "same-origin") &&
			request.cache === "default" &&
			!request.headers.has("range") &&
			!request.headers.has("authorization") &&
			this.#options.handles(url)
		);
	}

	async #get(request: Request, url: URL, level: Level | "strong" | undefined): Promise<Response> {
		const name = resource(url.pathname, url.search.slice(1));
		const strong = level === "strong";
		const wanted: Required<Options> = strong ? this.#options : { ...this.#options, ...level };
		const known = !strong && this.#knows(wanted);
		if (known) {
			const copy = this.#copies.find(url.href, request);
			if (copy && this.#usable(copy, name)) {
				this.counts.memory++;
				return copy.response.clone();
			}
			if (!this.#others.has(name) && !this.#sketch?.has(name)) {
				const answer = await this.#send(request, "force-cache");
				if (this.#fits(answer, url, name, wanted)) {
					this.counts.cache++;
					return this.#keep(request, url, answer);
				}
			} else if (this.#others.has(name)) {
				this.counts.passed++;
				return this.#keep(request, url, await this.#send(request, "default"));
			}
		}
		this.counts.revalidated++;
		const session = this.#session;
		let answer = await this.#send(request, strong ? "reload" : "no-cache");
		if (wanted.monotonicReads && this.#copies.older(url.href, answer)) answer = await this.#send(request, "reload");
		return this.#keep(request, url, answer, session);
	}

	/** Whether the sketch tells enough for this freshness; if not, another one is being loaded. */
	#knows(wanted: Required<Options>): boolean {
		const now = this.#time.now();
		const after = Math.max(
			now - wanted.delta * SECOND,
			wanted.readYourWrites ? this.#written : 0,
			wanted.causal ? this.#read : 0,
		);
		const enough = !!this.#sketch && this.#made >= after;
		// Half of Δ before it is too old: those who read all the time never wait.
		const soon = Math.max(after, now - (this.#options.delta * SECOND) / 2);
		if ((!enough || this.#made < soon) && performance.now() >= this.#retryAt) void this.refresh();
		return enough && wanted.delta > 0;
	}

	#usable(copy: Copy, name: string): boolean {
		return copy.until > this.#time.now() && (copy.at > this.#made || !this.#sketch?.has(name));
	}

	/** Whether an answer that may have come out of the browser's cache is what the server could have answered now. */
	#fits(answer: Response, url: URL, name: string, wanted: Required<Options>): boolean {
		const life = lifetime(answer);
		if (!life) {
			this.#others.add(name);
			if (this.#others.size > 1000) this.#others.clear();
			return /\bno-store\b/.test(answer.headers.get("cache-control") ?? "");
		}
		return (
			life.until > this.#time.now() &&
			!(life.personal && life.at < this.#session) &&
			!(wanted.monotonicReads && this.#copies.older(url.href, answer))
		);
	}

	#keep(request: Request, url: URL, answer: Response, session = this.#session): Response {
		const life = lifetime(answer);
		if (life) {
			this.#read = Math.max(this.#read, life.at);
			const still = (): boolean => !this.#off && (!life.personal || session === this.#session);
			this.#copies.keep(url.href, request, answer, life, still);
		}
		return answer;
	}

	#send(request: Request, cache: RequestCache): Promise<Response> {
		return this.#options.fetch(new Request(request.clone(), { cache }));
	}

	async #write(request: Request): Promise<Response> {
		this.counts.passed++;
		try {
			return await this.#options.fetch(request);
		} finally {
			// Answered or not, it may have been done. What the server's clock shows at most is not before it.
			if (this.#time.known) this.#say({ written: this.#time.now() });
			else this.#undated = true;
			if (this.#sketch) void this.refresh();
		}
	}

	async #load(): Promise<void> {
		const found = await load(this.#options.fetch, this.#options.sketch, this.#time, (now) =>
			Math.max(now - this.#options.delta * SECOND, this.#written),
		).catch(() => undefined);
		if (found === "off") return this.#say({ off: true });
		this.#retryAt = performance.now() + SECOND;
		if (found) {
			this.counts.sketches++;
			if (found.made < this.#made) return;
			this.#sketch = found.sketch;
			this.#made = found.made;
			this.#session ||= this.#time.now();
			if (this.#undated) this.#say({ written: this.#time.now() });
			this.#undated = false;
			return;
		}
		this.counts.refused++;
		if (!this.#warned) {
			this.#warned = true;
			console.warn(`quaestor: no Cache Sketch to rely on at ${this.#options.sketch}: every answer is revalidated`);
		}
	}

	#say(said: Said): void {
		this.#hear(said);
		this.#tabs.postMessage(said);
	}

	#hear(said: Said): void {
		if (said.off) this.#off = true;
		if (said.written) this.#written = Math.max(this.#written, said.written);
		if (said.session || said.off) {
			this.#session = this.#time.now();
			this.#copies.forget(said.off ? () => true : (copy) => copy.personal);
		}
	}
}
