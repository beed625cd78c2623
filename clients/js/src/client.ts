/**
 * Reads through the copies that a page, its browser and the caches on the way hold, none staler than Δ.
 *
 * A copy is used under two conditions. Its lifetime (`Quaestor-TTL`) is not over. And a Cache Sketch younger than Δ, of the
 * copy's partition or of everything, does not name it. A sketch older than the copy, or than its last check with the server,
 * may name it. If data is missing, late or malformed, the copy is revalidated with the server: nothing stale is used, and only
 * errors of `fetch` are thrown. All times are the server's, in ms since the epoch.
 */

import { unbundled, within } from "./bundle.ts";
import { type Copies, copiesWithin } from "./copies.ts";
import { type Lifetime, lifetime } from "./fields.ts";
import { type Held, type Known, LATEST, nothingKnown } from "./known.ts";
import type { Counts, Init, Level, Options } from "./options.ts";
import { resource } from "./resource.ts";
import { load, RECOMMENDED } from "./sketch_loader.ts";
import type { Said, Watched, Watcher } from "./watching.ts";

export type { Counts, Init, Level, Options } from "./options.ts";

const SECOND = 1000;
/** Names of which it is remembered what came last. */
const OTHERS = 10_000;
/** An answer leaves the server at most so much later than it says (`at`). */
const LEAVES = 100;
/** Clocks of an application's servers differ by at most so much. */
const GRACE = 2 * SECOND;

/**
 * Further options of a service worker; these names are shortened where the client is minified.
 * @internal
 */
export interface Within extends Options {
	/** Whether pages of several users read through it, as through a service worker: what is made for one user is then never kept. */
	shared?: boolean;
	/** The knowledge from before, when it is complete, and the listener for more: a browser ends a worker now and then. */
	known?: Known;
	ready?: Promise<unknown>;
	changed?: () => void;
}

type Defaults = "sketch" | "readYourWrites" | "monotonicReads" | "memory" | "wait" | "fetch";
type All = Within & Required<Pick<Options, Defaults>>;

/** Where there is no page, or are no tabs. */
const silent: Pick<BroadcastChannel, "postMessage" | "onmessage"> = { postMessage: () => {}, onmessage: null };

/** Have no more of an answer sent. */
const ended = (answer: Response): void => void answer.body?.cancel().catch(() => {});

export class Client {
	/** What it did. */
	declare readonly counts: Counts;
	/** As the global `fetch`, with one option more: `level`. */
	declare readonly fetch: (input: RequestInfo | URL, init?: Init) => Promise<Response>;
	/** Forget the answers that were made for one user, in all tabs: call it after a login. A write has the same effect. */
	declare readonly login: () => void;
	/** Forget the answers that were made for one user, in all tabs: call it after a logout. */
	declare readonly logout: () => void;
	/** Have the next reads see what was written by other means than this client: a form, a socket, another origin. */
	declare readonly wrote: () => void;
	/** Load the sketch of a partition, or of everything, now. */
	declare readonly refresh: (partition?: string) => Promise<void>;
	/**
	 * Whether a request to the page's origin is answered from copies where that may be.
	 * @internal
	 */
	declare readonly takes: (request: Request, url: URL) => boolean;
	/**
	 * Take in what another tab says.
	 * @internal
	 */
	declare readonly hear: (said: Said) => void;
	/**
	 * Ask whether the server still tells clients to leave everything to the network, if it did and no request asked for a while.
	 * @internal
	 */
	declare readonly look: () => Promise<void> | undefined;
	/**
	 * Let a watcher follow the client's work.
	 * @internal
	 */
	declare readonly watch: (watcher: Watcher) => Watched;

	constructor(options?: Options);
	/** @internal */
	constructor(options: Within);
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
		// Node.js has no page: nothing is of its origin, so everything passes.
		const origin = unbundled ? globalThis.location?.origin : location.origin;
		const page = !unbundled || !!origin;
		const tabs = !unbundled || (page && typeof BroadcastChannel === "function") ? new BroadcastChannel("quaestor") : silent;
		const watchers = new Set<Watcher>();
		const known = (within && options.known) || nothingKnown();
		const changed = (): unknown => within && options.changed?.();
		const watched = (tell: (watcher: Watcher) => void): void => {
			if (unbundled) watchers.forEach(tell);
		};
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

		/** Wait for a promise, but not for long. */
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
			if (said === "off") {
				known.off = true;
				// A sketch made before does not show that the switch-off is over.
				known.made = Math.max(known.made, time.now());
				known.held("").retryAt = performance.now() + RECOMMENDED * SECOND;
			}
			sessions++;
			copies.forget(known.off);
			changed();
			watched((watcher) => watcher.heard(said));
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
				if (!found.flat) return known.off ? undefined : say("off");
				const now = time.now();
				if (known.off) {
					if (!found.fresh && found.made <= known.made) return;
					// Nobody has followed what was read and written meanwhile: what was sent until now is not used.
					known.off = false;
					known.again = known.written = now;
				}
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
				// Events from before the server's time was known happened before now.
				known.written = Math.min(known.written, now, now - ago || 0);
				known.read = Math.min(known.read, now);
				copies.dateBy(now);
				if (found.fresh || found.made >= held.made) {
					held.flat = found.flat;
					held.made = found.made;
				}
				changed();
				watched((watcher) => watcher.loaded());
			} catch (error) {
				held.failures = Math.min(held.failures + 1, 5);
				if (!counts.refused++) console.warn(`quaestor: ${url}: ${error}: every answer is revalidated`);
				// The union tells of every partition.
				if (held.partition) want(options, "");
			} finally {
				held.loading = undefined;
				held.retryAt = performance.now() + SECOND * (known.off ? RECOMMENDED : 2 ** held.failures);
			}
		};

		const refresh = (partition = ""): Promise<void> => {
			const held = known.held(partition);
			return (held.loading ??= loaded(held));
		};

		const look = (): Promise<void> | undefined =>
			known.off && performance.now() >= known.held("").retryAt ? refresh() : undefined;

		/** Have a partition's sketch loaded if it is too old, or soon will be. The first time it is waited for. */
		const want = (wanted: All, partition: string): void => {
			const held = known.held(partition);
			const enough = held.made >= after(wanted);
			// Half of Δ before it is too old: clients that read all the time never wait.
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
			const own = url.origin === origin;
			if (own) void look();
			if (known.off || !own || !takes(request, url)) {
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

			/** As `session`, when the newest request was sent. */
			let sent = session;
			const send = (cache: RequestCache): Promise<Response> => {
				if (unbundled) sent = sessions;
				const asking = new Request(request, { cache });
				// Caches that overlook `no-cache`, because they receive invalidations, pass this on.
				if (cache === "reload") asking.headers.set("cache-control", "no-cache, no-store");
				return options.fetch(asking);
			};

			/** Whether a sketch that is young enough, of a partition or the union, tells that what shows all before is not stale. */
			const vouched = (partition: string, shows: number): boolean =>
				[partition, ""].some((one) => {
					const { made, flat } = known.held(one);
					return made >= after(wanted) && (shows > made || !flat!.names(name));
				});

			/** Whether a copy is not stale. A copy sent later than the server's clock can show was sent before that clock was set back. */
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
					watched((watcher) => watcher.read(url, copy, false));
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
				// A sketch was made then: the present answer includes all earlier writes.
				checked = known.made + 1;
				answer = await send(strong ? "reload" : "no-cache");
			}
			if (older(answer)) {
				ended(answer);
				answer = await send("reload");
			}

			const life = lifeOf(answer);
			const dated = time.now();
			// An answer without its time of departure may have left just now.
			const left = life ? life.at + LEAVES : latest();
			// The answer may show a write of another server, whose clock is ahead.
			known.read = Math.max(known.read, life ? life.at + SECOND : left);
			if (life) {
				remember(!life.personal && undefined);
				known.latest = life.partition;
				life.shows = Math.max(life.at, checked);
				watched((watcher) => watcher.read(url, life, sent !== sessions));
			}
			const still = (): boolean => !!dated && !known.off && !(life?.personal && ((within && options.shared) || session !== sessions));
			copies.keep(href, request, answer, life, left, still);
			return answer;
		};
		this.login = this.logout = () => say("session");
		this.wrote = () => say("wrote");
		this.refresh = refresh;
		if (within) {
			this.takes = takes;
			this.hear = hear;
			this.look = look;
		}
		if (unbundled) {
			this.watch = (watcher) => {
				watchers.add(watcher);
				const leave = (): unknown => watchers.delete(watcher);
				return { known, bound: () => bound(options), want: (partition) => want(options, partition), leave };
			};
		}

		if (page) try {
			ago = Date.now() - localStorage["quaestor"];
			known.written = LATEST;
		} catch {} // no storage: a worker, or the user's wish
		tabs.onmessage = ({ data }: MessageEvent<Said>) => hear(data);
		// Node.js would not end while it listens.
		if (unbundled) (tabs as { unref?: () => void }).unref?.();
		// Until what was known before is known again. Answers tell only when they come which partition they are of: until one does,
		// the union is loaded beside them.
		const begin = (): unknown => !page || time.now() || want(options, "");
		const ready = within ? soon(options.ready).then(begin) : begin();
	}
}
