/**
 * Reads through the copies that a page, its browser and the caches on the way hold, none staler than Δ.
 *
 * A copy is used while its lifetime (`Quaestor-TTL`) is not over, and a Cache Sketch that is younger than Δ, of the partition that the
 * copy names or of everything, does not name it or was made before the copy was sent. Whatever is missing, late or malformed, the copy is revalidated with the server: nothing
 * stale is used, and nothing is thrown that `fetch` would not have thrown. All times are the server's, in ms since the epoch.
 */

import { type Copies, copiesWithin } from "./copies.ts";
import { type Lifetime, lifetime } from "./fields.ts";
import { type Held, Known } from "./known.ts";
import { resource } from "./resource.ts";
import { load, RECOMMENDED } from "./sketch_loader.ts";

const SECOND = 1000;
/** Names that are remembered to come without a lifetime. */
const OTHERS = 1000;
/** An answer leaves the server at most so much later than it says (`at`). */
const LEAVES = SECOND;
/** Clocks of an application's servers differ by at most so much. */
const GRACE = 2 * SECOND;

/** The freshness that an answer has to have. */
export interface Level {
	/** Seconds that an answer may lag behind the database; 0: it is always asked for. Default: what the server recommends, or 60. */
	delta?: number;
	/** Whether what was written through this client, in any tab, is seen by its next reads. Default true. */
	readYourWrites?: boolean;
	/** Whether an answer is never older than the one before it, of the same URL. Default true. */
	monotonicReads?: boolean;
	/** Whether all answers are as new as the newest that this client was given. Default false. */
	causal?: boolean;
}

export interface Options extends Level {
	/** Where the Cache Sketch of everything is served, on the page's origin. Default `/quaestor/sketch`. */
	sketch?: string;
	/** Whether a URL of the page's origin is asked for this way. Default: all are. */
	handles?: (url: URL) => boolean;
	/** Bytes of answers kept in memory. Default 10,000,000. */
	memory?: number;
	/** Milliseconds that the first answers wait for the first sketch, which is asked for beside them, before they are revalidated. Default 200. */
	wait?: number;
	/** What sends requests. Default: the global `fetch`. */
	fetch?: typeof fetch;
	/** Whether pages of several users read through it, as through a service worker: what is made for one user is then the browser's. */
	shared?: boolean;
	/** What is known already, when that is complete, and whom to tell when more is: for a service worker, which is ended now and then. */
	known?: Known;
	ready?: Promise<unknown>;
	changed?: () => void;
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

type Defaults = "sketch" | "readYourWrites" | "monotonicReads" | "memory" | "wait" | "fetch";
type All = Options & Required<Pick<Options, Defaults>>;

/** Have no more of an answer sent. */
const ended = (answer: Response): void => void answer.body?.cancel().catch(() => {});

/** What clients of one browser tell each other. */
export type Said = "wrote" | "session" | "off";

export class Client {
	readonly counts: Counts = { memory: 0, cache: 0, revalidated: 0, passed: 0, sketches: 0, refused: 0 };
	readonly #options: All;
	readonly #tabs = new BroadcastChannel("quaestor");
	readonly #known: Known;
	readonly #copies: Copies;
	/** Names that come without a lifetime: the browser's own rules are theirs. */
	readonly #others = new Set<string>();
	/** Until what was known before is known again. */
	readonly #ready: Promise<unknown>;
	/** Sessions that began since this client was made. */
	#sessions = 0;

	constructor(options: Options = {}) {
		this.#options = {
			sketch: "/quaestor/sketch",
			readYourWrites: true,
			monotonicReads: true,
			memory: 10_000_000,
			wait: 200,
			fetch: (input, init) => fetch(input, init),
			...options,
		};
		this.#known = options.known ?? new Known();
		this.#copies = copiesWithin(this.#options.memory);
		this.#tabs.onmessage = ({ data }: MessageEvent<Said>) => this.hear(data);
		// Answers tell only when they come which partition they are of: until one does, the union is loaded beside them.
		this.#ready = this.#soon(options.ready).then(() => this.#known.time.known || this.#want(this.#options, ""));
	}

	/** As the global `fetch`, with one option more: `level`. */
	readonly fetch = async (input: RequestInfo | URL, init: Init = {}): Promise<Response> => {
		const { level, ...rest } = init;
		const request = new Request(input, rest);
		const url = new URL(request.url);
		if (!this.#known.off && url.origin === location.origin) {
			if (request.method !== "GET" && request.method !== "HEAD") return this.#write(request);
			if (this.takes(request, url)) return this.#get(request, url, level);
		}
		this.counts.passed++;
		return this.#options.fetch(request);
	};

	/** Forget the answers that were made for one user, in all tabs: call it when somebody has logged in. */
	login(): void {
		this.#say("session");
	}

	/** Forget the answers that were made for one user, in all tabs: call it when somebody has logged out. */
	logout(): void {
		this.#say("session");
	}

	/** Have the next reads see what was written by other means than this client: a form, a socket, another origin. */
	wrote(): void {
		this.#say("wrote");
	}

	/** Load the sketch of a partition, or of everything, now. */
	refresh(partition = ""): Promise<void> {
		const held = this.#known.held(partition);
		held.loading ??= this.#load(held).finally(() => {
			held.loading = undefined;
		});
		return held.loading;
	}

	/** Whether a request to the page's origin is answered from copies where that may be. */
	takes({ method, mode, cache, credentials, integrity, headers }: Request, url: URL): boolean {
		return (
			method === "GET" &&
			// Of the modes that there are: cors and same-origin.
			/^[cs]/.test(mode) &&
			cache === "default" &&
			credentials !== "omit" &&
			!integrity &&
			!headers.has("range") &&
			!headers.has("authorization") &&
			this.#options.handles?.(url) !== false
		);
	}

	/** Take in what another tab says. */
	hear(said: Said): void {
		const known = this.#known;
		// Each client counts by what it knows of the server's time itself: until it knows any, what was written or begun lies ahead.
		const now = known.time.now() || Number.MAX_VALUE;
		if (said === "wrote") {
			known.written = now;
			// No sketch before then can be known to have been made after.
			for (const held of known.sketches.values()) {
				held.retryAt = Math.max(held.retryAt, performance.now() + 2 * SECOND);
			}
		} else {
			known.off ||= said === "off";
			this.#sessions++;
			known.session = now;
			this.#copies.forget(known.off);
		}
		this.#options.changed?.();
	}

	async #get(request: Request, url: URL, level: Init["level"]): Promise<Response> {
		const name = resource(url.pathname, url.search.slice(1));
		const sessions = this.#sessions;
		await this.#ready;
		const strong = level === "strong";
		const wanted: All = { ...this.#options, ...(strong ? { delta: 0 } : level) };
		if (this.#bound(wanted) > 0) {
			const copy = this.#copies.find(url.href, request);
			const partition = this.#copies.partition(url.href) ?? this.#known.latest;
			this.#want(wanted, partition);
			if (copy && this.#usable(copy, name, wanted)) {
				request.signal.throwIfAborted();
				this.counts.memory++;
				return copy.answer();
			}
			if (this.#others.has(name)) {
				this.counts.passed++;
				return this.#keep(request, url, name, sessions, await this.#send(request, "default"));
			}
			if (this.#known.held(partition).first || this.#vouched(partition, name, 0, wanted)) {
				const answer = await this.#send(request, "force-cache");
				const life = this.#life(answer);
				if (life ? await this.#fits(answer, url, name, wanted, life) : this.#other(answer, name)) {
					this.counts.cache++;
					return this.#keep(request, url, name, sessions, answer);
				}
				ended(answer);
			}
		}
		this.counts.revalidated++;
		let answer = await this.#send(request, strong ? "reload" : "no-cache");
		const life = this.#life(answer);
		if (wanted.monotonicReads && life && this.#copies.older(url.href, answer, life.at)) {
			ended(answer);
			answer = await this.#send(request, "reload");
		}
		return this.#keep(request, url, name, sessions, answer);
	}

	/** Δ in ms. */
	#bound({ delta = this.#known.delta || RECOMMENDED }: Level): number {
		return delta * SECOND;
	}

	#life(answer: Response): Lifetime | undefined {
		const life = lifetime(answer);
		return life?.personal && this.#options.shared ? undefined : life;
	}

	/** A sketch has to be made then, for this freshness, to know of all that counts. */
	#after(wanted: All): number {
		const { time, written, read } = this.#known;
		return Math.max(time.now() - this.#bound(wanted), wanted.readYourWrites ? written : 0, wanted.causal ? read : 0);
	}

	/** Have a partition's sketch loaded if it is too old, or soon will be. The first time it is waited for. */
	#want(wanted: All, partition: string): void {
		const held = this.#known.held(partition);
		const enough = held.made >= this.#after(wanted);
		// Half of Δ before it is too old: those who read all the time never wait.
		if (enough && held.made >= this.#known.time.now() - this.#bound(this.#options) / 2) return;
		if (performance.now() < held.retryAt) return;
		const loading = this.refresh(held.partition);
		if (enough || held.first !== undefined) return;
		held.first = this.#soon(loading).finally(() => {
			held.first = null;
		});
	}

	/** What is waited for, but not for long. */
	#soon(done: Promise<unknown> | undefined): Promise<unknown> {
		return Promise.race([done, new Promise((late) => setTimeout(late, this.#options.wait))]);
	}

	/** Whether a sketch that is young enough, of a partition or the union, tells that what was sent then is not stale. */
	#vouched(partition: string, name: string, at: number, wanted: All): boolean {
		return [partition, ""].some((one) => {
			const { made, sketch } = this.#known.held(one);
			return made >= this.#after(wanted) && (at > made || !sketch!.has(name));
		});
	}

	/** Whether a copy is not stale. One that was sent later than the server's clock can show was sent by a clock that is wrong. */
	#usable({ at, until, sketch }: Lifetime, name: string, wanted: All): boolean {
		const now = this.#known.time.now();
		return until > now && at <= now && at > this.#known.again && this.#vouched(sketch, name, at, wanted);
	}

	/** Whether an answer that may have come out of the browser's cache is one that the server might give now. */
	async #fits(answer: Response, url: URL, name: string, wanted: All, life: Lifetime): Promise<boolean> {
		this.#want(wanted, life.sketch);
		await this.#known.held("").first;
		if (!this.#usable(life, name, wanted)) await this.#known.held(life.sketch).first;
		return (
			this.#usable(life, name, wanted) &&
			!(life.personal && life.at < this.#known.session) &&
			!(wanted.monotonicReads && this.#copies.older(url.href, answer, life.at))
		);
	}

	/** Leave a name without a lifetime to the browser's rules from now on. Whether this answer surely came from the network. */
	#other(answer: Response, name: string): boolean {
		if (this.#others.size >= OTHERS) this.#others.clear();
		this.#others.add(name);
		return /\bno-store\b/.test(answer.headers.get("cache-control") ?? "");
	}

	#keep(request: Request, url: URL, name: string, sessions: number, answer: Response): Response {
		const life = this.#life(answer);
		if (life && life.at <= this.#known.time.now()) {
			this.#others.delete(name);
			this.#known.latest = life.sketch;
			this.#known.read = Math.max(this.#known.read, life.at + LEAVES);
			const still = (): boolean => !this.#known.off && (!life.personal || sessions === this.#sessions);
			this.#copies.keep(url.href, request, answer, life, still);
		}
		return answer;
	}

	#send(request: Request, cache: RequestCache): Promise<Response> {
		const sent = new Request(request, { cache });
		// Caches that overlook `no-cache`, because they are told of changes, pass this on.
		if (cache === "reload") sent.headers.set("cache-control", "no-cache, no-store");
		return this.#options.fetch(sent);
	}

	async #write(request: Request): Promise<Response> {
		this.counts.passed++;
		try {
			return await this.#options.fetch(request);
		} finally {
			// Answered or not, it may have been done.
			this.#say("wrote");
		}
	}

	async #load(held: Held): Promise<void> {
		const known = this.#known;
		const { fetch, sketch, delta } = this.#options;
		const url = held.partition ? `${sketch}/${held.partition}` : sketch;
		try {
			const found = await load(fetch, url, known.time, delta);
			if (!found.sketch) return this.#say("off");
			const now = known.time.now();
			this.counts.sketches++;
			held.failures = 0;
			known.delta = found.delta;
			// A new sketch that is older than one before: the server's clock was set back, and the others count by another time.
			if (found.fresh && found.made + GRACE < known.made) {
				known.again = Math.max(known.made, known.read);
				known.made = 0;
				for (const other of known.sketches.values()) other.made = -1;
			}
			known.made = Math.max(known.made, found.made);
			// What is only known to have been before the server's time was known was before now.
			known.written = Math.min(known.written, now);
			known.session = Math.min(known.session || now, now);
			known.read = Math.min(known.read, now);
			if (found.fresh || found.made >= held.made) {
				held.sketch = found.sketch;
				held.made = found.made;
			}
			this.#options.changed?.();
		} catch (error) {
			this.counts.refused++;
			if (held.failures < 5) held.failures++;
			if (this.counts.refused === 1) console.warn(`quaestor: ${url}: ${error}: every answer is revalidated`);
			// The union tells of every partition.
			if (held.partition) this.#want(this.#options, "");
		} finally {
			held.retryAt = performance.now() + SECOND * 2 ** held.failures;
		}
	}

	#say(said: Said): void {
		this.hear(said);
		this.#tabs.postMessage(said);
		// A worker that the browser has ended hears only what wakes it.
		navigator.serviceWorker?.controller?.postMessage(said);
	}
}
