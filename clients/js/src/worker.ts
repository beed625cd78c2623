/**
 * The service worker: pages read through it without knowing of it, all with one sketch.
 *
 * Its URL carries the rules, or `self.quaestor` does in a site's own worker that imports it. `handles` is a path that requests
 * have to begin with, `not` a path that they must not; both may be repeated. `sketch` is the sketch's URL; `delta` is in
 * seconds; `offline` allows answers from old copies while the network fails. The browser may end a worker at any time. The
 * worker keeps its lasting state in the Cache API, and trusts nothing before that state is back.
 */

import { Client } from "./client.ts";
import { digits, lifetime } from "./fields.ts";
import { imported, ruled } from "./imported.ts";
import { LATEST, nothingKnown } from "./known.ts";
import { longDigest } from "./long_digest.ts";
import { readSketch, useLongDigest } from "./sketch.ts";
import { RECOMMENDED } from "./sketch_loader.ts";
import type { Said } from "./watching.ts";

interface Extendable extends Event {
	waitUntil(work: Promise<unknown>): void;
}
interface Installing extends Extendable {
	/** Not in all browsers: what the worker need not be started for. */
	addRoutes?: (rules: object[]) => Promise<void>;
}
interface Fetching extends Extendable {
	readonly request: Request;
	respondWith(answer: Promise<Response>): void;
}
interface Scope {
	addEventListener(name: "install", listener: (event: Installing) => void): void;
	addEventListener(name: "activate", listener: (event: Extendable) => void): void;
	addEventListener(name: "fetch", listener: (event: Fetching) => void): void;
	addEventListener(name: "message", listener: (event: Extendable & { data: unknown }) => void): void;
	skipWaiting(): Promise<void>;
	clients: { claim(): Promise<void> };
}

/** Data that another version kept is not read. */
const KEPT = "quaestor-2";
const STATE = "/quaestor/state";
const SECOND = 1000;

// A service worker cannot load it later.
useLongDigest(longDigest);

const worker = self as unknown as Scope;
const rules = ruled();
const foreign = imported();
const path = rules.get("sketch") || "/quaestor/sketch";
const delta = digits(rules.get("delta"));
const begins = (name: string, { pathname }: URL): boolean => rules.getAll(name).some((start) => pathname.startsWith(start));
const known = nothingKnown();

const restore = async (): Promise<void> => {
	const kept = await (await caches.open(KEPT)).match(STATE);
	if (!kept) return;
	const [time, wall, written, recommended, latest, sketches] = JSON.parse(kept.headers.get("state")!);
	// While a worker is ended only the wall clock goes on: if that was set back nobody knows how much time has gone by.
	const away = Date.now() - wall;
	if (away >= 0) known.time.learn(time, known.time.gone() - away);
	// A write that was under way when the worker ended may have ended by now.
	known.written = Math.max(known.written, Math.min(written, known.time.now() || LATEST));
	if (away < 0) return;
	const bodies = await kept.arrayBuffer();
	known.recommended ||= recommended;
	known.latest ||= latest;
	let begin = 0;
	for (const [partition, made, size] of sketches) {
		const held = known.held(partition);
		const flat = readSketch(bodies.slice(begin, (begin += size)));
		if (!flat || made < held.made) continue;
		held.flat = flat;
		held.made = made;
		known.made = Math.max(known.made, made);
	}
};

const ready = restore().catch(() => {});

/** Δ in ms. */
const bound = (): number => (delta || known.recommended || RECOMMENDED) * SECOND;

let keeping: Promise<unknown> = ready;
/** Keep what must not be forgotten, one after the other. */
const keep = (): void => {
	keeping = keeping
		.then(async () => {
			if (known.off) return caches.delete(KEPT);
			const { time, written, recommended, latest } = known;
			const now = time.now();
			if (!now) return;
			const young = [...known.parts.values()].filter(({ made }) => made >= now - bound());
			const sketches = young.map(({ partition, made, flat }) => [partition, made, flat!.raw.byteLength]);
			const state = JSON.stringify([now, Date.now(), written, recommended, latest, sketches]);
			const bodies = new Blob(young.map(({ flat }) => flat!.raw));
			return (await caches.open(KEPT)).put(STATE, new Response(bodies, { headers: { state } }));
		})
		.catch(() => {});
};

const client = new Client({
	...(delta ? { delta } : {}),
	sketch: path,
	handles: (url) => (!rules.has("handles") || begins("handles", url)) && !begins("not", url),
	shared: true,
	known,
	ready,
	changed: keep,
});

/** The sketch of a partition for a page, from here if it is young enough. Its own client judges it as it would judge the server's. */
const sketch = async (request: Request, partition: string): Promise<Response> => {
	await ready;
	const held = known.held(partition);
	const young = (age: number): boolean =>
		!known.off && held.made >= Math.max(known.written, known.time.now() - age);
	if (!young(bound() / 4)) await client.refresh(partition);
	if (!young(bound() / 2)) return fetch(request);
	// Pages add two seconds to `Date`, which says whole ones: it may show one less than the latest that the server's clock shows.
	const date = new Date(known.time.now() - SECOND).toUTCString();
	const said = `made=${held.made}${known.recommended && `, delta=${known.recommended}`}`;
	return new Response(held.flat!.raw, { headers: { "quaestor-sketch": said, date } });
};

const read = (request: Request): Promise<Response> =>
	client.fetch(request).catch(async (error: unknown) => {
		if (!rules.has("offline") || request.signal.aborted) throw error;
		// An answer from the browser's cache, however old, is marked as such.
		const old = await fetch(new Request(request, { cache: "force-cache" }));
		if (lifetime(old)?.personal !== false) throw error;
		const answer = new Response(old.body, old);
		answer.headers.set("quaestor-offline", "1");
		return answer;
	});

// In a site's own worker navigations, updates and messages are the site's.
if (!foreign) worker.addEventListener("install", (event) => {
	const network = ["navigate", "no-cors"].map((requestMode) => ({ condition: { requestMode }, source: "network" }));
	event.waitUntil(Promise.resolve(event.addRoutes?.(network)).catch(() => {}));
});

worker.addEventListener("activate", (event) => {
	const others = async (): Promise<void> => {
		for (const name of await caches.keys()) {
			if (/^quaestor-\d/.test(name) && name !== KEPT) await caches.delete(name);
		}
		if (!foreign) await worker.clients.claim();
	};
	event.waitUntil(others());
});

worker.addEventListener("message", (event) => {
	if (event.data === "skip waiting") {
		if (!foreign) void worker.skipWaiting();
	} else if (/^(wrote|session|off)$/.test(event.data as string)) {
		client.hear(event.data as Said);
		event.waitUntil(keeping);
	}
});

worker.addEventListener("fetch", (event) => {
	const { request } = event;
	const url = new URL(request.url);
	if (known.off) event.waitUntil(Promise.resolve(client.look()));
	if (known.off || url.origin !== location.origin || request.mode === "navigate" || request.mode === "no-cors") return;
	if (request.method === "GET") {
		const below = url.pathname.startsWith(path) && url.pathname.slice(path.length);
		if (below !== false && /^(\/[\w~-]{1,64})?$/.test(below) && !url.search && request.cache === "default") {
			event.respondWith(sketch(request, below.slice(1)));
		} else if (
			// Asked for by `fetch` or XMLHttpRequest, and not an endless stream.
			!request.destination &&
			!request.headers.get("accept")?.includes("text/event-stream") &&
			client.takes(request, url)
		) {
			event.respondWith(read(request));
		}
	} else if (request.method !== "HEAD" && request.method !== "OPTIONS") {
		// Should the worker be ended meanwhile, it remembers that something was being written.
		known.written = LATEST;
		keep();
		const wrote = (): void => {
			client.wrote();
			event.waitUntil(keeping);
		};
		// A page that has its answer may be closed at once, and its browser with it: the note is kept before.
		const noted = Promise.race([keeping, new Promise((late) => setTimeout(late, SECOND))]);
		const answer = fetch(request);
		answer.then(wrote, wrote);
		event.respondWith(noted.then(() => answer));
	}
});
