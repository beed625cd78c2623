/**
 * Reads through the copies that a page, its browser and the caches on the way hold, none staler than Δ.
 *
 * A copy is used while its lifetime (`Quaestor-TTL`) is not over, and a Cache Sketch that is younger than Δ, of the partition that the
 * copy names or of everything, does not name it, or was made before the copy was sent or was last checked with the server. Whatever is
 * missing, late or malformed, the copy is revalidated with the server: nothing stale is used, and nothing is thrown that `fetch` would not
 * have thrown. All times are the server's, in ms since the epoch.
 */

import { within } from "./bundle.ts";
import { type Copies, copiesWithin } from "./copies.ts";
import { type Lifetime, lifetime } from "./fields.ts";
import { type Held, type Known, LATEST, nothingKnown } from "./known.ts";
import { resource } from "./resource.ts";
import { load, RECOMMENDED } from "./sketch_loader.ts";

const SECOND = 1000;
/** Names of which it is remembered what came last. */
const OTHERS = 10_000;
/** An answer leaves the server at most so much later than it says (`at`). */
const LEAVES = 100;
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
}

/** What a service worker says besides; these names are shortened where the client is minified. */
export interface Within extends Options {
	/** Whether pages of several users read through it, as through a service worker: what is made for one user is then never kept. */
	shared?: boolean;
	/** What is known already, when that is complete, and whom to tell when more is: a worker is ended now and then. */
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
type All = Within & Required<Pick<Options, Defaults>>;

/** Have no more of an answer sent. */
const ended = (answer: Response): void => void answer.body?.cancel().catch(() => {});

/** What clients of one browser tell each other. */
export type Said = "wrote" | "session" | "off";

export class Client {
	/** What it did. */
	declare readonly counts: Counts;
	/** As the global `fetch`, with one option more: `level`. */
	declare readonly fetch: (input: RequestInfo | URL, init?: Init) => Promise<Response>;
	/** Forget the answers that were made for one user, in all tabs: call it when somebody has logged in. A write has the same effect. */
	declare readonly login: () => void;
	/** Forget the answers that were made for one user, in all tabs: call it when somebody has logged out. */
	declare readonly logout: () => void;
	/** Have the next reads see what was written by other means than this client: a form, a socket, another origin. */
	declare readonly wrote: () => void;
	/** Load the sketch of a partition, or of everything, now. */
	declare readonly refresh: (partition?: string) => Promise<void>;
	/** Whether a request to the page's origin is answered from copies where that may be. */
	declare readonly takes: (request: Request, url: URL) => boolean;
	/** Take in what another tab says. */
	declare readonly hear: (said: Said) => void;

	// Functions in here, and no private members: names that nobody sees from outside become single letters when it is built.
	constructor(given: Within = {}) {
		const options: All = {
			sketch: "/quaestor/sketch",
			readYourWrites: true,
			monotonicReads: true,
			memory: 10_000_000,
			wait: 200,
			fetch: (input, init) => fetch(input, init),
			...given,
		};
		const counts: Counts = { memory: 0, cache: 0, revalidated: 0, passed: 0, sketches: 0, refused: 0 };
		const tabs = new BroadcastChannel("quaestor");
		const known = (within && options.known) || nothingKnown();
		const changed = (): unknown => within && options.changed?.();
		const { time } = known;
		const copies = copiesWithin(options.memory);
		/** Names that are left to the browser's rules, because they come without a lifetime (true), and private ones: never out of its cache (false). */
		const others = new Map<string, boolean | undefined>();
		/** Sessions that began since this client was made, or may have: a write may be a login. */
		let sessions = 0;
		/** How long before this client was made a page wrote last, by the wall clock, which such pages leave behind; NaN: none did; 0: this one has since. */
		let ago = 0;

		/** The latest that the server's clock can show now. */
		const latest = (): number => time.now() || LATEST;

		/** Δ in ms. */
		const bound = ({ delta = known.recommended || RECOMMENDED }: Level): number => delta * SECOND;

		/** A sketch has to be made then, for this freshness, to know of all that counts. */
		const after = (wanted: All): number =>
			Math.max(time.now() - bound(wanted), wanted.readYourWrites ? known.written : 0, wanted.causal ? known.read : 0);

		/** The lifetime that counts. One of an answer that was sent later than the server's clock can show was given by a clock that is wrong. */
		const lifeOf = (answer: Response): Lifetime | undefined => {
			const life = lifetime(answer);
			return life && life.at <= latest() ? life : undefined;
		};

		/** What is waited for, but not for long. */
		const soon = (done: Promise<unknown> | undefined): Promise<unknown> =>
			Promise.race([done, new Promise((late) => setTimeout(late, options.wait))]);

		const hear = (said: Said): void => {
			if (said === "wrote") {
				// Each client counts by what it knows of the server's time itself: until it knows any, what was written lies ahead.
				known.written = latest();
				ago = 0;
				try {
					localStorage["quaestor"] = Date.now();
				} catch {}
				// No sketch before then can be known to have been made after.
				for (const held of known.parts.values()) {
					held.retryAt = Math.max(held.retryAt, performance.now() + 2 * SECOND);
				}
			}
			known.off ||= said === "off";
			sessions++;
			copies.forget(known.off);
			changed();
		};

		const say = (said: Said): void => {
			hear(said);
			tabs.postMessage(said);
			// A worker that the browser has ended hears only what wakes it.
			navigator.serviceWorker?.controller?.postMessage(said);
		};

		const loaded = async (held: Held): Promise<void> => {
			const url = held.partition ? `${options.sketch}/${held.partition}` : options.sketch;
			try {
				const found = await load(options, url, time);
				if (!found.flat) return say("off");
				const now = time.now();
				counts.sketches++;
				held.failures = 0;
				known.recommended = found.recommended;
				// A new sketch that is older than one before: the server's clock was set back, and the others count by another time.
				if (found.fresh && found.made + GRACE < known.made) {
					known.again = Math.max(known.made, known.read);
					known.made = 0;
					for (const other of known.parts.values()) other.made = -1;
				}
				known.made = Math.max(known.made, found.made);
				// What is only known to have been before the server's time was known was before now.
				known.written = Math.min(known.written, now, now - ago || 0);
				known.read = Math.min(known.read, now);
				copies.dateBy(now);
				if (found.fresh || found.made >= held.made) {
					held.flat = found.flat;
					held.made = found.made;
				}
				changed();
			} catch (error) {
				held.failures = Math.min(held.failures + 1, 5);
				if (!counts.refused++) console.warn(`quaestor: ${url}: ${error}: every answer is revalidated`);
				// The union tells of every partition.
				if (held.partition) want(options, "");
			} finally {
				held.loading = undefined;
				held.retryAt = performance.now() + SECOND * 2 ** held.failures;
			}
		};

		const refresh = (partition = ""): Promise<void> => {
			const held = known.held(partition);
			return (held.loading ??= loaded(held));
		};

		/** Have a partition's sketch loaded if it is too old, or soon will be. The first time it is waited for. */
		const want = (wanted: All, partition: string): void => {
			const held = known.held(partition);
			const enough = held.made >= after(wanted);
			// Half of Δ before it is too old: those who read all the time never wait.
			if (enough && held.made >= time.now() - bound(options) / 2) return;
			if (performance.now() < held.retryAt) return;
			const loading = refresh(held.partition);
			if (!enough && held.first === undefined) {
				held.first = soon(loading).finally(() => {
					held.first = null;
				});
			}
		};

		const takes = (request: Request, url: URL): boolean =>
			request.method === "GET" &&
			// Of the modes that there are: cors and same-origin.
			/^[cs]/.test(request.mode) &&
			request.cache === "default" &&
			request.credentials !== "omit" &&
			!request.integrity &&
			!request.headers.has("range") &&
			!request.headers.has("authorization") &&
			options.handles?.(url) !== false;

		this.counts = counts;
		this.fetch = async (input, { level, ...rest } = {}) => {
			const request = new Request(input, rest);
			const url = new URL(request.url);
			const own = !known.off && url.origin === location.origin;
			if (!own || !takes(request, url)) {
				counts.passed++;
				try {
					return await options.fetch(request);
				} finally {
					// Answered or not, it may have been done.
					if (own && request.method !== "GET" && request.method !== "HEAD") say("wrote");
				}
			}

			const { href } = url;
			const name = resource(url.pathname, url.search.slice(1));
			const session = sessions;
			if (within) await ready;
			const strong = level === "strong";
			const wanted: All = { ...options, ...(strong ? { delta: 0, monotonicReads: false } : level) };

			const send = (cache: RequestCache): Promise<Response> => {
				const sent = new Request(request, { cache });
				// Caches that overlook `no-cache`, because they are told of changes, pass this on.
				if (cache === "reload") sent.headers.set("cache-control", "no-cache, no-store");
				return options.fetch(sent);
			};

			/** Whether a sketch that is young enough, of a partition or the union, tells that what shows all before is not stale. */
			const vouched = (partition: string, shows: number): boolean =>
				[partition, ""].some((one) => {
					const { made, flat } = known.held(one);
					return made >= after(wanted) && (shows > made || !flat!.names(name));
				});

			/** Whether a copy is not stale. What was sent later than the server's clock can show was sent before that was set back. */
			const usable = (life: Lifetime): boolean => {
				const now = time.now();
				return life.until > now && life.at <= now && life.at > known.again && vouched(life.partition, life.shows);
			};

			const remember = (byRules: boolean | undefined): void => {
				if (others.size > OTHERS) others.clear();
				others.set(name, byRules);
			};

			/** Whether an answer would break the promise of monotonic reads. */
			const older = (answer: Response): boolean =>
				wanted.monotonicReads && copies.older(href, answer, lifeOf(answer));

			let answer: Response | undefined;
			let checked = 0;
			if (bound(wanted) > 0) {
				const copy = copies.find(href, request);
				const partition = copies.partition(href) ?? known.latest;
				want(wanted, partition);
				if (copy && usable(copy)) {
					request.signal.throwIfAborted();
					counts.memory++;
					return copy.answer();
				}
				const byRules = others.get(name);
				if (byRules) {
					counts.passed++;
					answer = await send("default");
				} else if (byRules ?? (known.held(partition).first || vouched(partition, 0))) {
					answer = await send("force-cache");
					const life = lifeOf(answer);
					/** Whether what may have come out of the browser's cache is an answer that the server might give now. */
					let fits: boolean;
					if (life) {
						want(wanted, life.partition);
						await known.held("").first;
						if (!usable(life)) await known.held(life.partition).first;
						// The browser's cache does not know when the user changes.
						fits = usable(life) && !life.personal;
					} else {
						// From now on it is left to the browser's rules. This one surely came from the network if nobody may store it.
						remember(true);
						fits = /\bno-store\b/.test(answer.headers.get("cache-control")!);
					}
					if (fits && !older(answer)) counts.cache++;
					else {
						ended(answer);
						answer = undefined;
					}
				}
			}
			if (!answer) {
				counts.revalidated++;
				// A sketch was made then: whoever answers now knows what was written before.
				checked = known.made + 1;
				answer = await send(strong ? "reload" : "no-cache");
			}
			if (older(answer)) {
				ended(answer);
				answer = await send("reload");
			}

			const life = lifeOf(answer);
			const told = time.now();
			// What does not say when it left may have left just now.
			const left = life ? life.at + LEAVES : latest();
			// It may show what another server did, whose clock is ahead.
			known.read = Math.max(known.read, life ? life.at + SECOND : left);
			if (life) {
				remember(!life.personal && undefined);
				known.latest = life.partition;
				life.shows = Math.max(life.at, checked);
			}
			const still = (): boolean => !!told && !known.off && !(life?.personal && ((within && options.shared) || session !== sessions));
			copies.keep(href, request, answer, life, left, still);
			return answer;
		};
		this.login = this.logout = () => say("session");
		this.wrote = () => say("wrote");
		this.refresh = refresh;
		if (within) {
			this.takes = takes;
			this.hear = hear;
		}

		try {
			ago = Date.now() - localStorage["quaestor"];
			known.written = LATEST;
		} catch {} // no storage: a worker, or the user's wish
		tabs.onmessage = ({ data }: MessageEvent<Said>) => hear(data);
		// Until what was known before is known again. Answers tell only when they come which partition they are of: until one does,
		// the union is loaded beside them.
		const begin = (): unknown => time.now() || want(options, "");
		const ready = within ? soon(options.ready).then(begin) : begin();
	}
}
