/** The rules by which the browser client uses copies, on a scripted network and scripted clocks. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Client, Init } from "../src/client.ts";
import { queryFn, swrFetcher } from "../src/fetchers.ts";
import { ORIGIN, sketchOf, World } from "./world.ts";

const read = async (client: Client, path: string, init?: Init): Promise<{ version: number; user: string | null }> =>
	(await client.fetch(ORIGIN + path, init)).json();

/** Let bodies that are being kept arrive. */
const settled = (): Promise<unknown> => new Promise((done) => setImmediate(() => setImmediate(done)));

/** A client whose copy of `/a` another process has outdated, longer than Δ ago. */
const outdated = async (): Promise<{ world: World; client: Client }> => {
	const world = new World();
	const client = world.client();
	await read(client, "/a");
	await settled();
	world.write("/a");
	world.now += 61_000;
	return { world, client };
};

const warned: string[] = [];
console.warn = (text: string) => void warned.push(text);

test("the second read of a page comes from its memory", async () => {
	const world = new World();
	const client = world.client();
	await read(client, "/a");
	await settled();
	await read(client, "/a");
	assert.equal(world.count("/a"), 1);
	assert.equal(client.counts.memory, 1);
});

test("a page that is loaded again reads from the browser's cache; a browser closed for longer than the lifetime does not", async () => {
	const world = new World();
	await read(world.client(), "/a");
	world.now += 500_000;
	await read(world.client(), "/a");
	assert.equal(world.count("/a"), 1);
	world.now += 200_000;
	await read(world.client(), "/a");
	assert.equal(world.count("/a"), 2);
});

test("what another process writes is seen after Δ at most", async () => {
	const { world, client } = await outdated();
	assert.equal((await read(client, "/a")).version, 1);
	assert.equal((await read(world.client(), "/a")).version, 1);
});

test("what the sketch names is asked for once for each sketch, however early its answer left", async () => {
	const { world, client } = await outdated();
	world.lag("/a");
	for (let i = 0; i < 100; i++) {
		world.now += 5_000;
		const { sketches } = client.counts;
		const asked = world.count("/a");
		assert.equal((await read(client, "/a")).version, 1);
		await settled();
		assert.ok(client.counts.sketches > sketches || world.count("/a") <= asked + 1);
	}
	assert.ok(client.counts.sketches > 10);
	assert.ok(world.count("/a") <= client.counts.sketches + 2, `${world.count("/a")} of ${client.counts.sketches}`);
});

test("Δ is what the server recommends, unless the page says it", async () => {
	for (const [delta, expected] of [[undefined, 1], [60, 0]] as const) {
		const world = new World();
		world.sketch = (_, url) => world.made(url.searchParams.get("nonce"), `delta=10, made=${world.now}`);
		const client = world.client(delta ? { delta } : {});
		await read(client, "/a");
		await settled();
		world.write("/a");
		world.now += 12_000;
		assert.equal((await read(client, "/a")).version, expected);
	}
});

test("what the page writes is seen at once, in every tab, in queries too", async () => {
	const world = new World();
	const [one, other] = [world.client(), world.client()];
	for (const client of [one, other]) for (const path of ["/a", "/list"]) await read(client, path);
	await settled();
	await one.fetch(`${ORIGIN}/a`, { method: "PUT" });
	world.write("/list");
	for (const client of [one, other]) {
		assert.equal((await read(client, "/a")).version, 1);
		assert.equal((await read(client, "/list")).version, 1);
	}
	const asked = world.count("/a");
	world.now += 3_000;
	await read(one, "/a");
	await settled();
	world.now += 1_000;
	await read(one, "/a");
	await settled();
	assert.ok(world.count("/a") <= asked + 1, "with a newer sketch copies are used again");
});

test("what was written shortly before a page was loaded is seen by it, also where a cache has the sketch from before", async () => {
	const world = new World();
	let kept: Response | undefined;
	world.sketch = (made) => (kept ??= made()).clone();
	const gone = world.client();
	for (const path of ["/a", "/b", "/list"]) await read(gone, path);
	await gone.fetch(`${ORIGIN}/a`, { method: "PUT" });
	world.write("/list");
	world.silence();
	world.now += 1_000;
	for (const path of ["/a", "/list"]) assert.equal((await read(world.client(), path)).version, 1);

	// A clock that was set back tells nothing of when that was.
	world.wall = -5_000;
	assert.equal((await read(world.client(), "/a")).version, 1);
	kept = undefined;
	world.wall = 0;
	world.now += 5_000;
	const asked = world.asked.length;
	await read(world.client(), "/b");
	assert.deepEqual(world.asked.slice(asked), ["sketch"], "a sketch from after it is relied on");
});

test("where nothing can be stored pages read as ever", async () => {
	const world = new World();
	Object.defineProperty(globalThis, "localStorage", { configurable: true, get: () => { throw Error("no"); } });
	const client = world.client();
	await read(client, "/a");
	await client.fetch(`${ORIGIN}/a`, { method: "PUT" });
	assert.equal((await read(client, "/a")).version, 1);
	Object.defineProperty(globalThis, "localStorage", { configurable: true, writable: true, value: {} });
	const stranger = world.client();
	(globalThis.localStorage as never as { quaestor: string }).quaestor = "another's";
	await read(stranger, "/b");
	await read(world.client(), "/b");
	assert.equal(world.count("/b"), 1);
});

test("a write before the first sketch, one that fails, and one by other means are seen too", async () => {
	for (const how of ["early", "failing", "announced"]) {
		const world = new World();
		await read(world.client(), "/a");
		const client = world.client();
		if (how !== "early") await read(client, "/a");
		const write = client.fetch(`${ORIGIN}/a`, { method: "POST" });
		if (how === "announced") {
			world.write("/a");
			client.wrote();
		}
		await write;
		assert.equal((await read(client, "/a")).version, how === "announced" ? 2 : 1);
	}
});

test("after a logout nobody is given what was made for the user before", async () => {
	const world = new World();
	const [one, other] = [world.client(), world.client()];
	for (const client of [one, other]) assert.equal((await read(client, "/me")).user, "A");
	await settled();
	let release = (): void => {};
	world.leaving = () => new Promise((done) => (release = done));
	world.now += 20_000;
	const late = read(one, "/me/late");
	await settled();
	one.logout();
	world.user = "B";
	one.login();
	world.leaving = () => {};
	release();
	await late;
	await settled();
	for (const client of [one, other, world.client()]) {
		assert.equal((await read(client, "/me")).user, "B");
		assert.equal((await read(client, "/me/late")).user, "B");
	}
});

test("a private answer is kept by its user's page, and not by the next page", async () => {
	const world = new World();
	const client = world.client();
	await read(client, "/me");
	await settled();
	const asked = world.count("/me");
	await read(client, "/me");
	assert.equal(world.count("/me"), asked);
	await read(world.client(), "/me");
	assert.ok(world.count("/me") > asked);
});

test("the kill switch: every tab lets everything pass, and forgets", async () => {
	const world = new World();
	const [one, other] = [world.client(), world.client()];
	for (const client of [one, other]) await read(client, "/a");
	await settled();
	world.sketch = () => new Response("<p>switched off", { status: 503, headers: { "quaestor-sketch": `made=${world.now}, off` } });
	world.now += 61_000;
	await read(one, "/a");
	await settled();
	world.sent.length = 0;
	world.asked.length = 0;
	for (const client of [one, other]) await read(client, "/a");
	assert.deepEqual(world.sent, ["/a default", "/a default"]);
	assert.ok(!world.asked.includes("sketch"));
});

test("the kill switch is off again: every tab asks once a minute, and what was sent before is not used", async () => {
	const world = new World();
	const [one, other] = [world.client(), world.client()];
	const off = (): Response => new Response("", { headers: { "quaestor-sketch": `made=${world.now}, off` } });
	for (const client of [one, other]) await read(client, "/a");
	await settled();
	world.sketch = off;
	world.now += 61_000;
	await read(one, "/a");
	await settled();
	world.asked.length = 0;
	for (let i = 0; i < 600; i++) {
		world.now += 1_000;
		for (const client of [one, other]) await read(client, "/plain");
		await settled();
	}
	const asked = world.asked.filter((line) => line === "sketch").length;
	assert.ok(asked >= 16 && asked <= 22, `${asked} in 10 minutes, of two tabs`);
	// A sketch that a cache kept from before does not switch it on again.
	const before = world.now - 660_000;
	world.sketch = (_, url) => world.made(url.searchParams.get("nonce") && "1", `made=${before}, delta=3600`);
	world.now += 61_000;
	await read(one, "/a");
	await settled();
	assert.equal(one.counts.memory + one.counts.cache, 1, "the first read of all");
	world.sketch = (made) => made();
	// Written by this tab meanwhile, and by another process just before.
	await one.fetch(`${ORIGIN}/list`, { method: "PUT" });
	world.write("/a");
	world.now += 61_000;
	for (const client of [one, other]) {
		await read(client, "/plain");
		await settled();
		for (const path of ["/a", "/list"]) assert.equal((await read(client, path)).version, 1);
		await settled();
	}
	world.now += 5_000;
	for (const client of [one, other]) {
		await read(client, "/a");
		await settled();
		const count = world.count("/a");
		assert.equal((await read(client, "/a")).version, 1);
		assert.equal(world.count("/a"), count, "copies are used again");
	}
});

const hostile: Record<string, (world: World) => Response> = {
	html: () => new Response("<!doctype html><p>Please log in"),
	"a kept error": () => new Response("{}", { status: 503 }),
	"no field": (world) => new Response(world.made(null).body),
	"no time": (world) => world.made(null, "delta=60"),
	cut: (world) => new Response("short", { headers: world.made(null).headers }),
	"times that are none": (world) => world.made(null, "made=Infinity, delta=1e9"),
	"an old one": (world) => world.made("1", `made=${world.now - 120_000}`),
};
for (const [name, answer] of Object.entries(hostile)) {
	test(`the sketch's URL answers with ${name}: everything is revalidated, which is said once`, async () => {
		const world = new World();
		world.sketch = () => answer(world);
		warned.length = 0;
		const client = world.client();
		for (let version = 0; version < 3; version++) {
			assert.equal((await read(client, "/a")).version, version);
			await settled();
			world.write("/a");
			world.now += 20_000;
		}
		assert.equal(warned.length, 1);
		assert.equal(client.counts.memory + client.counts.cache, 0);
	});
}

test("a sketch that a cache has kept for too long is asked for once more past it", async () => {
	const world = new World();
	const client = world.client();
	await read(client, "/a");
	await settled();
	const old = world.now;
	world.sketch = (made, url) => (url.search ? made() : world.made(null, `made=${old}`));
	world.write("/a");
	world.now += 61_000;
	await read(client, "/a");
	await settled();
	assert.equal((await read(client, "/a")).version, 1);
	assert.equal(world.asked.filter((line) => line === "sketch nonce").length, 1);
	assert.equal(client.counts.refused, 0);
});

test("nobody waits for a sketch that does not come", async () => {
	const world = new World();
	world.sketch = () => new Promise(() => {});
	const client = world.client({ wait: 5 });
	assert.equal((await read(client, "/a")).version, 0);
	world.write("/a");
	assert.equal((await read(client, "/a")).version, 1);
});

test("wrong clocks: a sketch is as old as the clock that went further says", async () => {
	for (const jump of [-3_600_000, 3_600_000]) {
		for (const clock of ["wall", "monotonic"] as const) {
			const world = new World();
			const client = world.client();
			await read(client, "/a");
			await settled();
			world.sketch = () => new Response("", { status: 503 });
			world[clock] += jump;
			world.write("/a");
			world.now += 61_000;
			assert.equal((await read(client, "/a")).version, 1, `${clock} ${jump}`);
		}
	}
});

test("what one clock missed asleep, and what is taken back from the other, do not cancel", async () => {
	const world = new World();
	const client = world.client();
	await read(client, "/a");
	await settled();
	world.sketch = () => new Response("", { status: 503 });
	world.now += 30_000;
	world.monotonic -= 30_000;
	await read(client, "/a");
	world.wall -= 30_000;
	world.write("/a");
	world.now += 31_000;
	assert.equal((await read(client, "/a")).version, 1);
});

test("after the server's clock was set back nothing from before is used", async () => {
	const world = new World();
	const client = world.client();
	await read(client, "/a");
	await settled();
	world.now -= 300_000;
	world.wall += 300_000;
	world.monotonic += 300_000;
	for (const pause of [61_000, 219_000]) {
		world.now += pause;
		await read(client, "/b");
		await settled();
		await settled();
	}
	world.write("/a");
	world.now += 25_000;
	assert.equal((await read(client, "/a")).version, 1);
});

test("after a jump of the wall clock copies are used again", async () => {
	const world = new World();
	const client = world.client();
	await read(client, "/a");
	world.wall += 3_600_000;
	await client.fetch(`${ORIGIN}/a`, { method: "PUT" });
	for (let i = 0; i < 5; i++) {
		await read(client, "/a");
		await settled();
		world.now += 3_000;
	}
	const asked = world.count("/a");
	await read(client, "/a");
	assert.equal(world.count("/a"), asked);
});

test("what the client is not for passes untouched", async () => {
	const world = new World();
	const client = world.client({ handles: (url) => !url.pathname.startsWith("/not") });
	await read(client, "/a");
	world.sent.length = 0;
	await client.fetch(`${ORIGIN}/a`, { method: "HEAD" });
	await client.fetch(`${ORIGIN}/a`, { headers: { range: "bytes=0-1" } });
	await client.fetch(`${ORIGIN}/a`, { headers: { authorization: "Bearer x" } });
	await client.fetch(`${ORIGIN}/a`, { cache: "no-store" });
	await client.fetch(`${ORIGIN}/a`, { credentials: "omit" });
	await client.fetch(`${ORIGIN}/a`, { mode: "no-cors" });
	await client.fetch(`${ORIGIN}/not/a`);
	await client.fetch("https://other.test/a");
	const modes = ["default", "default", "default", "no-store", "default", "default"];
	assert.deepEqual(world.sent, [...modes.map((mode) => `/a ${mode}`), "/not/a default", "/a default"]);
});

test("answers without a lifetime are the browser's, until they have one", async () => {
	const world = new World();
	const client = world.client();
	await read(client, "/plain");
	world.write("/plain");
	assert.equal((await read(client, "/plain")).version, 1);
	assert.equal(world.sent.at(-1), "/plain default");
	world.extra = () => ({ "quaestor-ttl": `600;at=${world.now}` });
	await read(client, "/plain");
	await settled();
	const asked = world.count("/plain");
	await read(client, "/plain");
	assert.equal(world.count("/plain"), asked);
});

for (const field of ["600", "600;at=", "-1;at=5", "600;at=1, 600;at=2", "1e9;at=5", "600;at=x;private", "600;at=99999999999999"]) {
	test(`a lifetime that is none is none: ${field}`, async () => {
		const world = new World();
		world.extra = () => ({ "quaestor-ttl": field });
		const client = world.client();
		for (let version = 0; version < 3; version++) {
			world.now += 5_000;
			await settled();
			if (version) world.write("/a");
			assert.equal((await read(client, "/a")).version, version);
		}
		assert.equal(client.counts.memory, 0);
	});
}

test("Vary: a copy answers those who ask alike; what depends on cookies is always asked for", async () => {
	const world = new World();
	world.extra = (path) => ({ vary: path === "/a" ? "Accept, Accept-Encoding" : "Cookie" });
	const client = world.client();
	const json = { headers: { accept: "application/json" } };
	await read(client, "/a", json);
	await settled();
	await read(client, "/a", json);
	assert.equal(client.counts.memory, 1);
	await read(client, "/a", { headers: { accept: "text/html" } });
	assert.equal(client.counts.memory, 1);
	await read(client, "/cookie");
	await settled();
	world.write("/cookie");
	assert.equal((await read(client, "/cookie")).version, 1);
});

test("strong: past every cache, whatever is known", async () => {
	const world = new World();
	const client = world.client();
	await read(client, "/a");
	await settled();
	world.write("/a");
	assert.equal((await read(client, "/a", { level: "strong" })).version, 1);
	assert.equal(world.asked.at(-1), "GET /a no-cache, no-store");
	world.write("/a");
	assert.equal((await read(client, "/a", { level: { delta: 0 } })).version, 2);
});

test("causal: nothing older than what was read is used", async () => {
	const world = new World();
	const client = world.client({ causal: true });
	await read(client, "/cause");
	await read(client, "/effect");
	await settled();
	world.now += 5_000;
	world.write("/cause");
	world.write("/effect");
	await read(client, "/effect", { level: "strong" });
	assert.equal((await read(client, "/cause")).version, 1);
});

test("monotonic: an answer older than the one before is asked for again past the caches", async () => {
	for (const [monotonicReads, expected] of [[true, 1], [false, 0]] as const) {
		const world = new World();
		const client = world.client({ monotonicReads });
		await read(client, "/a");
		world.lag("/a");
		world.now += 1_000;
		world.write("/a");
		assert.equal((await read(client, "/a", { level: "strong" })).version, 1);
		await settled();
		assert.equal((await read(client, "/a", { level: { delta: 0 } })).version, expected);
	}
});

test("monotonic: an answer that does not say when it left is not gone back from", async () => {
	const world = new World();
	const client = world.client();
	const alwaysDated = world.dated;
	await read(client, "/a");
	await settled();
	world.lag("/a");
	world.now += 1_000;
	world.write("/a");
	world.dated = () => false;
	assert.equal((await read(client, "/a", { level: "strong" })).version, 1);
	assert.equal((await read(client, "/a")).version, 1, "neither to memory");
	world.dated = alwaysDated;
	assert.equal((await read(client, "/a", { level: { delta: 0 } })).version, 1, "nor to a cache on the way");
	world.behind.clear();
	world.now += 5_000;
	await read(client, "/a");
	await settled();
	const asked = world.count("/a");
	assert.equal((await read(client, "/a")).version, 1);
	assert.equal(world.count("/a"), asked, "what leaves later is kept again");
});

test("monotonic: an answer whose lifetime got lost may be any old one, and is asked for again past the caches", async () => {
	const world = new World();
	const client = world.client();
	await read(client, "/a");
	world.dated = () => false;
	world.lag("/a");
	world.dated = () => true;
	world.now += 1_000;
	world.write("/a");
	assert.equal((await read(client, "/a", { level: "strong" })).version, 1);
	assert.equal((await read(client, "/a", { level: { delta: 0 } })).version, 1);
	world.extra = () => ({ "quaestor-ttl": "" });
	await read(client, "/plain");
	const asked = world.count("/plain");
	world.write("/plain");
	await read(client, "/plain");
	assert.equal(world.count("/plain"), asked + 1, "what never had one is asked for once");
});

test("monotonic: a version that is not kept takes the place of one that is", async () => {
	const world = new World();
	const client = world.client({ memory: 10_000 });
	await read(client, "/a");
	await settled();
	world.now += 1_000;
	world.write("/a");
	world.extra = () => ({ "content-length": "1000000" });
	assert.equal((await read(client, "/a", { level: "strong" })).version, 1);
	assert.equal((await read(client, "/a")).version, 1);
});

test("monotonic: before the server's time is known versions count too; an error is no version", async () => {
	const world = new World();
	let limited = false;
	world.sketch = () => new Response("", { status: 503 });
	const client = world.client({
		fetch: async (...asked) => {
			const answer = await world.fetch(...asked);
			return limited ? new Response('{"version": 7}', { status: 429 }) : answer;
		},
	});
	await read(client, "/a");
	world.lag("/a");
	world.now += 1_000;
	world.write("/a");
	assert.equal((await read(client, "/a", { level: "strong" })).version, 1);
	assert.equal((await read(client, "/a")).version, 1);
	const asked = world.count("/a");
	limited = true;
	assert.equal((await read(client, "/a")).version, 7);
	assert.equal(world.count("/a"), asked + 1, "it is not asked again");
	limited = false;
	assert.equal((await read(client, "/a")).version, 1, "what was known before is known");
});

test("causal: what an answer shows that does not say when it left counts as shown now", async () => {
	const world = new World();
	const client = world.client({ causal: true });
	await read(client, "/effect");
	await settled();
	world.now += 5_000;
	await client.refresh();
	world.write("/effect");
	await read(client, "/plain");
	assert.equal((await read(client, "/effect")).version, 1);
});

/** Each path names a partition of its own. */
const apart = (world: World): void => {
	world.partition = (path) => `of${path.slice(1)}`;
};

test("an answer is looked up in the partition that it names, which is loaded when it is needed", async () => {
	const world = new World();
	apart(world);
	const client = world.client();
	await read(client, "/a");
	await settled();
	assert.deepEqual(world.asked.filter((line) => line.startsWith("sketch")), ["sketch", "sketch/ofa"]);
	for (let i = 0; i < 3; i++) {
		world.now += 31_000;
		await read(client, "/a");
		await settled();
	}
	assert.equal(world.asked.filter((line) => line === "sketch").length, 1, "the union is not needed any more");
	assert.equal(world.count("/a"), 1);
	world.write("/a");
	world.now += 61_000;
	assert.equal((await read(client, "/a")).version, 1);
	await read(client, "/b");
	await settled();
	assert.ok(world.asked.includes("sketch/ofb"));
});

test("a partition whose sketch cannot be relied on is covered by the union", async () => {
	const world = new World();
	apart(world);
	world.sketch = (made, url) => (url.pathname.endsWith("/ofa") ? new Response("", { status: 404 }) : made());
	const client = world.client();
	for (let i = 0; i < 3; i++) {
		await read(client, "/a");
		await settled();
		world.now += 31_000;
	}
	assert.equal(world.count("/a"), 1);
	world.write("/a");
	world.now += 61_000;
	assert.equal((await read(client, "/a")).version, 1);
});

test("what the union names for another's sake is asked of its own partition", async () => {
	const world = new World();
	apart(world);
	const full = sketchOf([]).fill(255, 40);
	world.sketch = (made, url) =>
		url.pathname.endsWith("/sketch") ? new Response(full as BodyInit, { headers: made().headers }) : made();
	for (let page = 0; page < 3; page++) await read(world.client(), "/a");
	assert.equal(world.count("/a"), 1, "copies of the browser's cache are used");
});

test("partitions are bounded: beyond, the union is asked", async () => {
	const world = new World();
	apart(world);
	const client = world.client();
	for (let i = 0; i < 80; i++) {
		await read(client, `/${i}`);
		await settled();
	}
	assert.equal(new Set(world.asked.filter((line) => line.startsWith("sketch/"))).size, 64);
	world.write("/79");
	world.now += 61_000;
	assert.equal((await read(client, "/79")).version, 1);
});

test("an answer with a long URL is revalidated until its digest can be made, and kept afterwards", async () => {
	const world = new World();
	const client = world.client();
	const path = `/${"x".repeat(300)}`;
	// With a sketch that is younger than the copy, as long as it takes to load a module.
	while (!client.counts.memory) {
		await read(client, path);
		await settled();
		world.now += 1_000;
		await client.refresh();
	}
	world.write(path);
	world.now += 61_000;
	assert.equal((await read(client, path)).version, 1);
});

test("an aborted read is aborted; a failure of the network is the page's to see", async () => {
	const world = new World();
	const client = world.client();
	await read(client, "/a");
	await settled();
	await assert.rejects(client.fetch(`${ORIGIN}/a`, { signal: AbortSignal.abort() }), { name: "AbortError" });
	world.leaving = () => Promise.reject(new TypeError("Failed to fetch"));
	await assert.rejects(client.fetch(`${ORIGIN}/b`), TypeError);
});

test("memory is bounded", async () => {
	const world = new World();
	const client = world.client({ memory: 10_000 });
	for (let i = 0; i < 20; i++) await read(client, `/${i}`);
	await settled();
	world.asked.length = 0;
	for (let i = 19; i >= 0; i--) await read(client, `/${i}`);
	assert.ok(client.counts.memory >= 5 && client.counts.memory <= 10, String(client.counts.memory));
});

test("fetchers for SWR and TanStack Query: JSON, errors for other answers, aborted as the library wants", async () => {
	const world = new World();
	const client = world.client();
	assert.deepEqual(await swrFetcher(client)(`${ORIGIN}/a`), { version: 0, user: null });
	assert.deepEqual(await swrFetcher(client)([`${ORIGIN}/a`, "token"]), { version: 0, user: null });
	assert.deepEqual(await queryFn(client)({ queryKey: [`${ORIGIN}/a`] }), { version: 0, user: null });
	await assert.rejects(queryFn(client)({ queryKey: [`${ORIGIN}/a`], signal: AbortSignal.abort() }), { name: "AbortError" });
	const refused = new World().client({ fetch: async () => new Response("no", { status: 404 }) });
	await assert.rejects(swrFetcher(refused)(`${ORIGIN}/a`), { name: "AnswerError", message: /status 404/ });
});

/** Numbers that look random, the same for the same seed. */
const chance = (seed: number) => (): number => {
	seed = (seed + 0x6d2b79f5) | 0;
	let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
	mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
	return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
};

const HISTORIES = Number(process.env.HISTORIES ?? 60);

test(`every promise holds in ${HISTORIES} random histories`, async () => {
	const found = { reads: 0, copies: 0 };
	for (let seed = 1; seed <= HISTORIES; seed++) await history(seed, found);
	assert.ok(found.copies > found.reads / 10, JSON.stringify(found));
});

/** Reads, writes, pauses, wrong clocks, new pages, and a way to the sketch that now and then gives an old one. */
const history = async (seed: number, found: { reads: number; copies: number }): Promise<void> => {
	const random = chance(seed);
	const pick = <T>(of: readonly T[]): T => of[Math.floor(random() * of.length)]!;
	const world = new World();
	const delta = pick([10, 30, 60]);
	if (random() < 0.5) world.partition = (path) => ({ "/a": "one", "/b": "two" })[path] ?? "";
	// In half of them every fifth answer does not say when it left.
	const undated = pick([0, 0.2]);
	world.dated = () => random() >= undated;
	// One clock at a time. Nothing in a browser shows that both stood still, or that an old answer comes with an equally slow clock.
	const wrong = pick(["wall", "monotonic"]);
	let client = world.client({ delta });
	let own = new Map<string, number>();
	let newest = new Map<string, number>();
	const paths = ["/a", "/b", "/list"];
	let kept: Record<string, () => Response> = {};
	const happening = {
		read: async () => {
			const path = pick(paths);
			const before = world.now;
			const level = random() < 0.15 ? ("strong" as const) : undefined;
			const { version } = await read(client, path, level ? { level } : {});
			const over = world.versions(path)[version + 1];
			const bound = level ? 0 : delta * 1000;
			const where = `seed ${seed}, ${path}, version ${version}`;
			assert.ok(over === undefined || over >= before - bound, `${where}: stale for ${before - (over ?? 0)} ms`);
			assert.ok(version >= (own.get(path) ?? 0), `${where}: own write ${own.get(path)} is not seen`);
			assert.ok(version >= (newest.get(path) ?? 0), `${where}: ${newest.get(path)} was seen before`);
			newest.set(path, version);
			found.reads++;
			await settled();
		},
		write: () => world.write(pick(paths)),
		ownWrite: async () => {
			const path = pick(paths);
			await client.fetch(ORIGIN + path, { method: "PUT" });
			own.set(path, world.versions(path).length - 1);
		},
		pause: () => void (world.now += Math.floor(random() ** 3 * delta * 2000)),
		clock: () => {
			if (wrong === "wall") world.wall = pick([0, 0, -3_600_000, 3_600_000, 7_000]);
			else world.monotonic -= Math.floor(random() * 100_000);
		},
		page: () => {
			found.copies += client.counts.memory + client.counts.cache;
			client = world.client({ delta });
			// When a page that is gone wrote, only the wall clock tells.
			if (wrong === "wall") own = new Map();
			newest = new Map();
		},
		way: () => {
			const fault = pick(["", "", "", "replay", "strip", "error"]);
			world.sketch = (made, url) => {
				if (fault === "error") return new Response("{}", { status: 503 });
				const old = kept[url.pathname];
				if (old && (fault === "strip" || (fault === "replay" && !url.search))) return old();
				const [now, body] = [world.now, made()];
				const bytes = body.clone().arrayBuffer();
				const { headers } = body;
				if (!old || random() < 0.05) {
					kept = {};
					void bytes.then((all) => (kept[url.pathname] = () => new Response(all, { headers })));
				}
				assert.ok(now);
				return body;
			};
		},
	};
	const events = ["read", "read", "read", "read", "read", "read", "write", "ownWrite", "pause", "pause", "clock", "page", "way"] as const;
	for (let step = 0; step < 80; step++) await happening[pick(events)]();
	found.copies += client.counts.memory + client.counts.cache;
};
