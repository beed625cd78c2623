/** A server, a browser's HTTP cache and clocks, all scripted: `fetch`, `Date.now` and `performance.now` are theirs. */
import type * as source from "../src/client.ts";
import { resource } from "../src/resource.ts";
import { bytes, SALT } from "../src/secret.ts";
import { xxh128 } from "../src/xxh128.ts";

/** As it is written, or as it was built. */
const { Client } = (await import(process.env.CLIENT ?? "../src/client.ts")) as typeof source;

export const ORIGIN = "https://app.test";
const SLICES = 4;
const WIDTH = 29_200;
const TTL = 600;

/** The body of a sketch that names these resources. */
export const sketchOf = (names: Iterable<string>): Uint8Array => {
	const body = new Uint8Array(40 + (SLICES * WIDTH) / 8);
	const view = new DataView(body.buffer);
	view.setUint32(8, SLICES, true);
	view.setUint32(16, WIDTH, true);
	for (const name of names) {
		const key = bytes(SALT + name);
		const digest = [...xxh128(new DataView(key.buffer), key.length)].reverse();
		for (let slice = 0; slice < SLICES; slice++) {
			const number = ((digest[slice]! & 0xff) << 8) | (digest[slice]! >> 8);
			const bit = slice * WIDTH + (number % WIDTH);
			body[40 + (bit >> 3)]! |= 1 << (bit & 7);
		}
	}
	return body;
};

interface Answer {
	body: string;
	headers: Record<string, string>;
	status: number;
}

const tabs = new Set<BroadcastChannel>();

export class World {
	/** The true time, which the server's clock shows. */
	now = 1_800_000_000_000;
	/** Errors of this machine's clocks. */
	wall = 0;
	monotonic = -1_800_000_000_000;
	/** Requests that reached the server: `METHOD path cache-control`. */
	readonly asked: string[] = [];
	/** Modes in which the client called `fetch`: `path mode`. */
	readonly sent: string[] = [];
	/** When each version of a path was written. */
	readonly written = new Map<string, number[]>();
	user = "A";
	/** User of an answer below `/me`. */
	whose: (request: Request) => string | null = () => this.user;
	/** Whether the server gives answers a lifetime, by path. */
	dated: (path: string) => boolean = (path) => !path.startsWith("/plain");
	/** Fields that the server adds to an answer, by path. */
	extra: (path: string) => Record<string, string> = () => ({});
	/** The sketch's answer after an untrusted way. */
	sketch: (made: () => Response, url: URL) => Response | Promise<Response> = (made) => made();
	/** Called before an answer leaves the server. */
	leaving: (path: string) => Promise<void> | void = () => {};
	/** Answers of a CDN that has not received a change yet, by path. */
	readonly behind = new Map<string, Answer>();
	readonly #cache = new Map<string, Answer>();
	/** The latest end of a resource's copies, and the stale resources. */
	readonly #expiry = new Map<string, number>();
	readonly #stale = new Set<string>();
	/** Which partition an answer names, by path. */
	partition: (path: string) => string = () => "";

	constructor() {
		tabs.clear();
		Date.now = () => this.now + this.wall;
		performance.now = () => this.now + this.monotonic;
		Object.assign(globalThis, {
			location: { origin: ORIGIN },
			localStorage: {},
			BroadcastChannel: class {
				onmessage = (_: { data: unknown }): void => {};
				constructor() {
					tabs.add(this as never);
				}
				postMessage(data: unknown): void {
					for (const tab of tabs) if ((tab as never) !== this) tab.onmessage?.({ data } as MessageEvent);
				}
			},
		});
	}

	/** Disconnect all present listeners. */
	silence(): void {
		tabs.clear();
	}

	client(options: source.Options = {}): source.Client {
		return new Client({ sketch: `${ORIGIN}/quaestor/sketch`, fetch: this.fetch, ...options });
	}

	/** Write a path as another process. */
	write(path: string): void {
		const versions = this.versions(path);
		this.now += 1;
		versions.push(this.now);
		const name = resource(path, "");
		if ((this.#expiry.get(name) ?? 0) > this.now) this.#stale.add(name);
	}

	versions(path: string): number[] {
		let versions = this.written.get(path);
		if (!versions) this.written.set(path, (versions = [0]));
		return versions;
	}

	/** The sketch's answer, made now. */
	made(nonce: string | null, field = `made=${this.now}, delta=60`, partition = ""): Response {
		const said = nonce ? `${field}, nonce=${nonce}` : field;
		const headers = { "quaestor-sketch": said, date: new Date(this.now).toUTCString() };
		const names = [...this.#stale].filter((name) => !partition || this.partition(name) === partition);
		return new Response(sketchOf(names) as BodyInit, { headers });
	}

	readonly fetch = async (input: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
		const request = new Request(input, init);
		const url = new URL(request.url);
		this.now += 2;
		if (url.pathname.startsWith("/quaestor/sketch")) {
			const below = url.pathname.slice("/quaestor/sketch".length);
			this.asked.push(`sketch${below}${url.search && " nonce"}`);
			return this.sketch(() => this.made(url.searchParams.get("nonce"), undefined, below.slice(1)), url);
		}
		this.sent.push(`${url.pathname} ${request.cache}`);
		const stored = request.method === "GET" ? this.#cache.get(url.href) : undefined;
		if (stored && request.cache === "force-cache") return new Response(stored.body, stored);
		this.asked.push(`${request.method} ${url.pathname} ${request.headers.get("cache-control") ?? ""}`.trim());
		const answer = this.#answer(request, url.pathname);
		await this.leaving(url.pathname);
		if (request.method === "GET" && answer.headers["cache-control"] !== "no-store") this.#cache.set(url.href, answer);
		this.now += 2;
		return new Response(answer.body, answer);
	};

	/** Answers that reached the server, of one path. */
	count(path: string): number {
		return this.asked.filter((line) => line.split(" ")[1] === path).length;
	}

	/** Have a CDN keep what is answered now. */
	lag(path: string): void {
		this.behind.set(path, this.#answer(new Request(ORIGIN + path), path));
	}

	#answer(request: Request, path: string): Answer {
		if (request.method !== "GET" && request.method !== "HEAD") this.write(path);
		const behind = this.behind.get(path);
		if (behind && !request.headers.get("cache-control")?.includes("no-store")) return behind;
		const version = this.versions(path).length - 1;
		const personal = path.startsWith("/me");
		const body = JSON.stringify({ version, user: personal ? this.whose(request) : null });
		this.#expiry.set(resource(path, ""), this.now + (TTL + 5) * 1000);
		const partition = this.partition(path) && `;sketch=${this.partition(path)}`;
		const lifetime = { "quaestor-ttl": `${TTL};at=${this.now}${partition}${personal ? ";private" : ""}` };
		const whose = personal ? { vary: "cookie", "cache-control": "private, max-age=0, must-revalidate" } : {};
		const headers = { etag: JSON.stringify(body), ...whose, ...(this.dated(path) ? lifetime : {}), ...this.extra(path) };
		return { body, headers, status: 200 };
	}
}
