/**
 * Private answers in one page, with the fields of the real middleware: no user gets another user's answer, however users are
 * distinguished. A page's write is seen by its next read. FIELDS holds the middleware's answers, one for each kind of `by`.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ORIGIN, World } from "./world.ts";

interface Kind {
	name: string;
	/** The fields of the middleware's answer. */
	headers: Record<string, string>;
	/** The request field that tells users apart; empty: none does. */
	field: string;
}

const KINDS = JSON.parse(process.env.FIELDS!) as Kind[];
const USERS = ["ann", "bob", "cid"];

/** A generator of pseudo-random numbers (mulberry32). */
const chance = (seed: number) => (): number => {
	seed = (seed + 0x6d2b79f5) | 0;
	let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
	t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
	return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
};

const settled = (): Promise<unknown> => new Promise((done) => setImmediate(() => setImmediate(done)));

for (const { name, headers, field } of KINDS) {
	const kept = "quaestor-ttl" in headers;

	const history = async (seed: number): Promise<number> => {
		const random = chance(seed);
		const pick = <T>(of: readonly T[]): T => of[Math.floor(random() * of.length)]!;
		const world = new World();
		world.extra = () => ({ ...headers, ...(kept && { "quaestor-ttl": headers["quaestor-ttl"]!.replace(/at=\d+/, `at=${world.now}`) }) });
		world.dated = () => false;
		if (field && field !== "cookie") world.whose = (request) => request.headers.get(field);
		const client = world.client();
		let least = 0;
		const read = async (): Promise<void> => {
			const sent: Record<string, string> = { accept: "application/json" };
			if (field && field !== "cookie") sent[field] = world.user;
			const { version, user } = await (await client.fetch(`${ORIGIN}/me`, { headers: sent })).json();
			const where = `${name}, seed ${seed}`;
			assert.equal(user, world.user, where);
			assert.ok(version >= least, `${where}: own write ${least} is not seen, but ${version}`);
			await settled();
		};
		const happening = {
			read,
			pause: () => void (world.now += Math.floor(random() * 40_000)),
			ownWrite: async () => {
				await client.fetch(`${ORIGIN}/me`, { method: "PUT" });
				least = world.versions("/me").length - 1;
			},
			user: async () => {
				world.user = pick(USERS);
				// A page cannot see a change of its cookie: it calls `login`, or its own request made the change.
				if (field !== "cookie") return;
				if (random() < 0.5) client.login();
				else await client.fetch(`${ORIGIN}/session`, { method: "POST" });
			},
		};
		await client.refresh();
		for (let step = 0; step < 60; step++) {
			await happening[pick(["read", "read", "read", "read", "pause", "ownWrite", "user"] as const)]();
		}
		assert.equal(client.counts.cache, 0, `${name}: out of the browser's cache`);
		return client.counts.memory;
	};

	test(`${name}: users are given their own answers, and see their own writes`, async () => {
		let memory = 0;
		for (let seed = 1; seed <= 60; seed++) memory += await history(seed);
		assert.equal(memory > 0, kept, `${memory} answers out of memory`);
	});

	test(`${name}: who carries nothing that tells users apart is given nothing kept`, async () => {
		if (field === "cookie") return; // a page cannot see them
		const world = new World();
		world.extra = () => ({ ...headers, "quaestor-ttl": `60;at=${world.now};private` });
		world.dated = () => false;
		const client = world.client();
		await client.refresh();
		for (const user of USERS) {
			world.user = user;
			const answer = await client.fetch(`${ORIGIN}/me`, { headers: { accept: "text/html", "accept-language": "de" } });
			assert.equal((await answer.json()).user, user);
			await settled();
		}
		assert.equal(client.counts.memory, 0);
	});
}
