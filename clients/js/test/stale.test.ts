/** What a page is told of that has become stale, on a scripted network and scripted clocks. */
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

/** A page that has read these paths, and what it is told. */
const page = async (world: World, ...paths: string[]): Promise<{ client: Client; told: string[]; leave: () => void }> => {
	const client = world.client();
	const told: string[] = [];
	const leave = onStale(client, (url) => told.push(url));
	for (const path of paths) await read(client, path);
	await settled();
	return { client, told, leave };
};

test("what another process writes is told of within Δ, once, and the next read shows it", async () => {
	const world = new World();
	const { client, told } = await page(world, "/a?x=1", "/b");
	await pass(world, 100);
	assert.deepEqual(told, []);
	world.write("/b");
	await pass(world, 61);
	assert.deepEqual(told, ["/b"]);
	await pass(world, 120);
	assert.deepEqual(told, ["/b"]);
	assert.equal((await read(client, "/b")).version, 1);
});

test("what is read again is told of again, at most once for each sketch", async () => {
	const world = new World();
	const { client, told } = await page(world, "/a");
	for (let version = 1; version < 4; version++) {
		world.write("/a");
		await pass(world, 61);
		assert.ok(told.length);
		told.length = 0;
		assert.equal((await read(client, "/a")).version, version);
	}
	const { sketches } = client.counts;
	for (let i = 0; i < 100; i++) {
		await pass(world, 1);
		if (told.length) await read(client, "/a");
	}
	assert.ok(told.length <= client.counts.sketches - sketches, `${told.length}`);
});

test("own writes of any tab are told of at once, of everything; logging out of what was made for one user", async () => {
	const world = new World();
	const { client, told } = await page(world, "/a", "/me");
	const other = world.client();
	other.logout();
	assert.deepEqual(told, ["/me"]);
	await read(client, "/me");
	await settled();
	await other.fetch(`${ORIGIN}/elsewhere`, { method: "PUT" });
	assert.deepEqual(told, ["/me", "/a", "/me"]);
});

test("what was written while an answer was on its way is told of", async () => {
	const world = new World();
	const { client, told } = await page(world);
	for (const level of ["strong", {}] as const) {
		let arrive = (): void => {};
		world.leaving = (path) => (path === "/a" ? new Promise((done) => (arrive = done)) : undefined);
		const reading = client.fetch(`${ORIGIN}/a`, { level });
		await settled();
		await client.fetch(`${ORIGIN}/b`, { method: "PUT" });
		told.length = 0;
		arrive();
		await settled();
		// One that may have come out of a cache was asked for again, after the write.
		arrive();
		await reading;
		assert.deepEqual(told, level === "strong" ? ["/a"] : []);
		world.now += 10_000;
		world.leaving = () => {};
		await client.refresh();
		await settled();
	}
});

test("the end of a lifetime is told of; an answer without one never", async () => {
	const world = new World();
	const { told } = await page(world, "/a", "/plain");
	await pass(world, 590);
	assert.deepEqual(told, []);
	await pass(world, 30);
	assert.deepEqual(told, ["/a"]);
});

test("sketches are loaded while the page is seen and has read something, and until it is left", async () => {
	const world = new World();
	const { client, told, leave } = await page(world);
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
	assert.deepEqual(told.filter((url) => url !== "/a"), []);
	assert.equal(sketches(), before);
});

test("a page that is not seen asks for nothing, and looks when it is seen again", async () => {
	const seen = Object.assign(new EventTarget(), { visibilityState: "hidden" });
	Object.assign(globalThis, { document: seen });
	try {
		const world = new World();
		const { told } = await page(world, "/a");
		world.asked.length = 0;
		world.write("/a");
		await pass(world, 300);
		assert.deepEqual([world.asked, told], [[], []]);
		seen.visibilityState = "visible";
		seen.dispatchEvent(new Event("visibilitychange"));
		await settled();
		assert.deepEqual(told, ["/a"]);
	} finally {
		Reflect.deleteProperty(globalThis, "document");
	}
});

test("a bundled client cannot be watched, which is said", () => {
	assert.throws(() => onStale({} as Client, () => {}), /quaestor-client\/min/);
});
