/** The service worker on a scripted network, scripted clocks and a scripted Cache API; it is ended by being loaded anew. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ORIGIN, World } from "./world.ts";

type Kept = Map<string, Map<string, { body: ArrayBuffer; headers: [string, string][] }>>;

const settled = async (): Promise<void> => {
	for (let i = 0; i < 20; i++) await new Promise((done) => setImmediate(done));
};

let started = 0;

/** A worker of one browser, on what the one before it kept. */
const start = async (world: World, kept: Kept, search = "") => {
	await settled();
	world.silence();
	const listeners: Record<string, (event: object) => void> = {};
	const took: string[] = [];
	const opened = (name: string) => ({
		match: async (key: string) => {
			const found = kept.get(name)?.get(key);
			return found && new Response(found.body, { headers: found.headers });
		},
		put: async (key: string, answer: Response) => {
			const body = await answer.arrayBuffer();
			if (!kept.has(name)) kept.set(name, new Map());
			kept.get(name)!.set(key, { body, headers: [...answer.headers] });
		},
	});
	Object.assign(globalThis, {
		location: { origin: ORIGIN, pathname: "/quaestor/worker.js", search },
		self: {
			addEventListener: (name: string, listener: (event: object) => void) => (listeners[name] = listener),
			skipWaiting: async () => void took.push("over"),
			clients: { claim: async () => {} },
		},
		caches: {
			open: async (name: string) => opened(name),
			delete: async (name: string) => kept.delete(name),
			keys: async () => [...kept.keys()],
		},
		fetch: (input: RequestInfo | URL, init?: RequestInit) =>
			world.fetch(typeof input === "string" && input.startsWith("/") ? ORIGIN + input : input, init),
	});
	// A worker has no localStorage, not an empty one.
	Reflect.deleteProperty(globalThis, "localStorage");
	await import(`../src/worker.ts?${++started}`);
	const ask = (request: object): Promise<Response> | undefined => {
		let answer: Promise<Response> | undefined;
		listeners.fetch!({ request, respondWith: (given: Promise<Response>) => (answer = given), waitUntil: () => {} });
		return answer;
	};
	return {
		took,
		ask,
		get: async (path: string, init?: RequestInit): Promise<{ version: number; user: string | null }> =>
			(await ask(new Request(ORIGIN + path, init))!).json(),
		happens: (name: string, event: object = {}) => listeners[name]!({ waitUntil: () => {}, ...event }),
	};
};

test("pages read through it, all with one sketch", async () => {
	const world = new World();
	const worker = await start(world, new Map());
	await worker.get("/a");
	await settled();
	await worker.get("/a");
	assert.equal(world.count("/a"), 1);
	for (let page = 0; page < 3; page++) {
		const sketch = await worker.ask(new Request(`${ORIGIN}/quaestor/sketch`))!;
		assert.match(sketch.headers.get("quaestor-sketch")!, /^made=\d+, delta=60$/);
		const date = Date.parse(sketch.headers.get("date")!);
		assert.ok(date + 2_000 >= world.now && date <= world.now + 2_000);
		assert.ok((await sketch.arrayBuffer()).byteLength > 14_000);
	}
	assert.deepEqual(world.asked.filter((line) => line.startsWith("sketch")), ["sketch"]);
});

test("a page gets a sketch that knows of what it wrote, or the server's own", async () => {
	const world = new World();
	const worker = await start(world, new Map());
	await worker.get("/a");
	await worker.ask(new Request(`${ORIGIN}/a`, { method: "PUT" }));
	await settled();
	const wrote = world.now;
	world.now += 3_000;
	const sketch = await worker.ask(new Request(`${ORIGIN}/quaestor/sketch`))!;
	assert.ok(Number(/made=(\d+)/.exec(sketch.headers.get("quaestor-sketch")!)![1]) >= wrote);
});

test("partitions: it gives pages the one that they ask for, and goes on with those that it had", async () => {
	const world = new World();
	world.partition = (path) => `of${path.slice(1)}`;
	const kept: Kept = new Map();
	const worker = await start(world, kept);
	for (const path of ["/a", "/b"]) await worker.get(path);
	await settled();
	const asked = world.asked.length;
	const sketch = await worker.ask(new Request(`${ORIGIN}/quaestor/sketch/ofa`))!;
	assert.equal((await sketch.arrayBuffer()).byteLength, 14_640);
	world.now += 10_000;
	const again = await start(world, kept);
	for (const path of ["/a", "/b"]) assert.equal((await again.get(path)).version, 0);
	assert.equal(world.asked.length, asked, "nothing is asked for");
	world.write("/a");
	world.now += 61_000;
	const third = await start(world, kept);
	assert.equal((await third.get("/a")).version, 1);
	assert.equal((await third.get("/b")).version, 0);
	await settled();
	assert.equal(world.asked.filter((line) => line === "sketch").length, 1, "the union is not needed any more");
});

test("it goes on with the Δ that the server recommends", async () => {
	const world = new World();
	world.sketch = (_, url) => world.made(url.searchParams.get("nonce"), `made=${world.now}, delta=10`);
	const kept: Kept = new Map();
	await (await start(world, kept)).get("/a");
	await settled();
	world.sketch = () => new Response("", { status: 503 });
	world.write("/a");
	world.now += 11_000;
	assert.equal((await (await start(world, kept)).get("/a")).version, 1);
});

test("a worker that was ended goes on with the sketch that it had", async () => {
	const world = new World();
	const kept: Kept = new Map();
	await (await start(world, kept)).get("/a");
	world.now += 10_000;
	world.monotonic -= 5_000_000;
	const asked = world.asked.length;
	assert.equal((await (await start(world, kept)).get("/a")).version, 0);
	assert.equal(world.asked.length, asked);
});

for (const [why, how] of [
	["it is older than Δ", (world: World) => (world.now += 61_000)],
	["the wall clock was set back meanwhile", (world: World) => ((world.now += 61_000), (world.wall -= 100_000))],
] as const) {
	test(`it does not go on with it if ${why}`, async () => {
		const world = new World();
		const kept: Kept = new Map();
		await (await start(world, kept)).get("/a");
		await settled();
		world.sketch = () => new Response("", { status: 503 });
		how(world);
		world.write("/a");
		assert.equal((await (await start(world, kept)).get("/a")).version, 1);
	});
}

test("what was written through it is not forgotten, neither what was being written", async () => {
	for (const under of [false, true]) {
		const world = new World();
		const kept: Kept = new Map();
		const worker = await start(world, kept);
		for (const path of ["/a", "/list"]) await worker.get(path);
		await settled();
		let release = (): void => {};
		if (under) world.leaving = () => new Promise((done) => (release = done));
		const writing = worker.ask(new Request(`${ORIGIN}/a`, { method: "PUT" }))!;
		if (!under) await writing;
		world.write("/list");
		const again = await start(world, kept);
		release();
		world.leaving = () => {};
		assert.equal((await again.get("/list")).version, 1);
		assert.equal((await again.get("/a")).version, 1);
	}
});

test("what is made for one user is never reused by it", async () => {
	const world = new World();
	const worker = await start(world, new Map());
	for (const user of ["A", "B", "A"]) {
		world.user = user;
		world.now += 5_000;
		assert.equal((await worker.get("/me")).user, user);
		await settled();
	}
});

test("what it is not for passes untouched", async () => {
	const world = new World();
	const worker = await start(world, new Map(), "?handles=/a&not=/a/not");
	const request = { url: `${ORIGIN}/a`, method: "GET", mode: "cors", cache: "default", headers: new Headers(), destination: "" };
	assert.ok(worker.ask(new Request(request.url)));
	await settled();
	for (const other of [
		{ mode: "navigate" },
		{ mode: "navigate", method: "POST" },
		{ mode: "no-cors" },
		{ destination: "script" },
		{ cache: "force-cache" },
		{ headers: new Headers({ range: "bytes=0-1" }) },
		{ headers: new Headers({ accept: "text/event-stream" }) },
		{ method: "HEAD" },
		{ url: `${ORIGIN}/b` },
		{ url: `${ORIGIN}/a/not` },
		{ url: "https://other.test/a", method: "POST" },
		{ url: `${ORIGIN}/quaestor/sketch?nonce=5` },
	]) {
		assert.equal(worker.ask({ ...request, ...other }), undefined, JSON.stringify(other));
	}
});

test("the kill switch: everything passes, and nothing is kept", async () => {
	const world = new World();
	const kept: Kept = new Map();
	const worker = await start(world, kept);
	await worker.get("/a");
	await settled();
	assert.equal(kept.size, 1);
	worker.happens("message", { data: "off" });
	await settled();
	assert.equal(worker.ask(new Request(`${ORIGIN}/a`)), undefined);
	assert.equal(kept.size, 0);
});

test("the kill switch is off again: a worker that still runs finds out within a minute", async () => {
	const world = new World();
	const worker = await start(world, new Map());
	await worker.get("/a");
	await settled();
	worker.happens("message", { data: "off" });
	world.write("/a");
	world.asked.length = 0;
	for (let i = 0; i < 3; i++) assert.equal(worker.ask(new Request(`${ORIGIN}/a`)), undefined);
	assert.deepEqual(world.asked, [], "not at once");
	world.now += 61_000;
	for (let i = 0; i < 3; i++) worker.ask(new Request(`${ORIGIN}/a`));
	await settled();
	assert.deepEqual(world.asked, ["sketch"]);
	for (let i = 0; i < 2; i++) assert.equal((await worker.get("/a")).version, 1);
});

test("offline: old answers say that they are, if the page wants them; what is made for one user is none", async () => {
	for (const search of ["", "?offline"]) {
		const world = new World();
		const worker = await start(world, new Map(), search);
		for (const path of ["/a", "/me"]) await worker.get(path);
		world.leaving = () => Promise.reject(new TypeError("Failed to fetch"));
		world.sketch = () => Promise.reject(new TypeError("Failed to fetch"));
		world.now += 700_000;
		const answer = worker.ask(new Request(`${ORIGIN}/a`))!;
		if (search) assert.equal((await answer).headers.get("quaestor-offline"), "1");
		else await assert.rejects(answer, TypeError);
		await assert.rejects(worker.ask(new Request(`${ORIGIN}/me`))!, TypeError);
	}
});

test("a newer worker takes over only when it is asked to, and what other versions kept is removed then", async () => {
	const world = new World();
	const kept: Kept = new Map([["quaestor-0", new Map()], ["another", new Map()]]);
	const worker = await start(world, kept);
	worker.happens("install");
	await settled();
	assert.deepEqual([worker.took, kept.has("quaestor-0")], [[], true]);
	worker.happens("message", { data: "skip waiting" });
	assert.deepEqual(worker.took, ["over"]);
	worker.happens("activate");
	await settled();
	assert.deepEqual([kept.has("quaestor-0"), kept.has("another")], [false, true]);
});
