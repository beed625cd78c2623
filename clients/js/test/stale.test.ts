/** Notifications of a page about stale answers, on a scripted network and scripted clocks. */
import assert from "node:assert/strict";
import { mock, test } from "node:test";
import type { Client } from "../src/client.ts";
import { onStale } from "../src/stale.ts";
import { ORIGIN, World } from "./world.ts";

const settled = async (): Promise<void> => {
	for (let i = 0; i < 5; i++) await new Promise((done) => setImmediate(done));
};

const read = async (client: Client, path: string): Promise<{ version: number }> => (await client.fetch(ORIGIN + path)).json();

mock.timers.enable({ apis: ["setTimeout"] });

/** Time goes by in a page that reads nothing. */
const pass = async (world: World, seconds: number): Promise<void> => {
	for (let i = 0; i < seconds; i++) {
		world.now += 1_000;
		mock.timers.tick(1_000);
		await settled();
	}
};

/** A page that has read these paths, and its notifications. */
const page = async (world: World, ...paths: string[]): Promise<{ client: Client; notified: string[]; leave: () => void }> => {
	const client = world.client();
	const notified: string[] = [];
	const leave = onStale(client, (url) => notified.push(url));
	for (const path of paths) await read(client, path);
	await settled();
	return { client, notified, leave };
};

test("a write of another process is reported within Δ, once, and the next read shows it", async () => {
	const world = new World();
	const { client, notified } = await page(world, "/a?x=1", "/b");
	await pass(world, 100);
	assert.deepEqual(notified, []);
	world.write("/b");
	await pass(world, 61);
	assert.deepEqual(notified, ["/b"]);
	await pass(world, 120);
	assert.deepEqual(notified, ["/b"]);
	assert.equal((await read(client, "/b")).version, 1);
});

test("a repeated reading is reported again, at most once for each sketch", async () => {
	const world = new World();
	const { client, notified } = await page(world, "/a");
	for (let version = 1; version < 4; version++) {
		world.write("/a");
		await pass(world, 61);
		assert.ok(notified.length);
		notified.length = 0;
		assert.equal((await read(client, "/a")).version, version);
	}
	const { sketches } = client.counts;
	for (let i = 0; i < 100; i++) {
		await pass(world, 1);
		if (notified.length) await read(client, "/a");
	}
	assert.ok(notified.length <= client.counts.sketches - sketches, `${notified.length}`);
});

test("own writes of any tab notify everything at once; a logout notifies answers made for one user", async () => {
	const world = new World();
	const { client, notified } = await page(world, "/a", "/me");
	const other = world.client();
	other.logout();
	assert.deepEqual(notified, ["/me"]);
	await read(client, "/me");
	await settled();
	await other.fetch(`${ORIGIN}/elsewhere`, { method: "PUT" });
	assert.deepEqual(notified, ["/me", "/a", "/me"]);
});

test("a write while an answer was on its way is reported", async () => {
	const world = new World();
	const { client, notified } = await page(world);
	for (const level of ["strong", {}] as const) {
		let arrive = (): void => {};
		world.leaving = (path) => (path === "/a" ? new Promise((done) => (arrive = done)) : undefined);
		const reading = client.fetch(`${ORIGIN}/a`, { level });
		await settled();
		await client.fetch(`${ORIGIN}/b`, { method: "PUT" });
		notified.length = 0;
		arrive();
		await settled();
		// One that may have come out of a cache was asked for again, after the write.
		arrive();
		await reading;
		assert.deepEqual(notified, level === "strong" ? ["/a"] : []);
		world.now += 10_000;
		world.leaving = () => {};
		await client.refresh();
		await settled();
	}
});

test("the end of a lifetime is reported; an answer without a lifetime never", async () => {
	const world = new World();
	const { notified } = await page(world, "/a", "/plain");
	await pass(world, 590);
	assert.deepEqual(notified, []);
	await pass(world, 30);
	assert.deepEqual(notified, ["/a"]);
});

test("sketches are loaded while the page is seen and has read something, and until it is left", async () => {
	const world = new World();
	const { client, notified, leave } = await page(world);
	await pass(world, 300);
	const sketches = (): number => world.asked.filter((line) => line.startsWith("sketch")).length;
	assert.equal(sketches(), 1);
	await read(client, "/a");
	await settled();
	await pass(world, 600);
	assert.ok(sketches() > 8 && sketches() < 25, `${sketches()}`);
	leave();
	const before = sketches();
	world.write("/a");
	await client.fetch(`${ORIGIN}/a`, { method: "PUT" });
	await pass(world, 300);
	assert.deepEqual(notified.filter((url) => url !== "/a"), []);
	assert.equal(sketches(), before);
});

test("a page that is not seen asks for nothing, and looks when it is seen again", async () => {
	const seen = Object.assign(new EventTarget(), { visibilityState: "hidden" });
	Object.assign(globalThis, { document: seen });
	try {
		const world = new World();
		const { notified } = await page(world, "/a");
		world.asked.length = 0;
		world.write("/a");
		await pass(world, 300);
		assert.deepEqual([world.asked, notified], [[], []]);
		seen.visibilityState = "visible";
		seen.dispatchEvent(new Event("visibilitychange"));
		await settled();
		assert.deepEqual(notified, ["/a"]);
	} finally {
		Reflect.deleteProperty(globalThis, "document");
	}
});

test("a bundled client cannot be watched, which is said", () => {
	assert.throws(() => onStale({} as Client, () => {}), /quaestor-client\/min/);
});
