/** A site with a service worker of its own, on a scripted browser: ours does not replace it, and may be imported by it. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { imported, ruled } from "../src/imported.ts";
import { type Refused, register } from "../src/registration.ts";

const ORIGIN = "https://app.test";
const OURS = "/quaestor/worker.js?handles=/api/";
const SITES = `${ORIGIN}/sw.js`;
const REMEDY = 'self.quaestor = "handles=/api/"; importScripts("/quaestor/worker.js");';

type Worker = { scriptURL: string };
type Registered = { scope: string; active?: Worker; waiting?: Worker; installing?: Worker };

let registered: Registered | undefined;
let calls: string[] = [];
let refused: Refused[] = [];
let warnings: string[] = [];
const warn = console.warn;

/** The browser's registrations: one scope, whose worker is replaced by each call of `register`, unless `overtakes` names another. */
const browser = (overtakes?: string) => ({
	getRegistration: async () => registered,
	register: async (url: string, { scope }: { scope: string }) => {
		calls.push(url);
		const scriptURL = calls.length === 1 && overtakes ? overtakes : new URL(url, ORIGIN).href;
		registered = { scope: ORIGIN + scope, active: { scriptURL } };
		return Object.assign(registered, { addEventListener: () => {} });
	},
});

const define = (name: string, value: unknown): void =>
	void Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });

beforeEach(() => {
	registered = undefined;
	[calls, refused, warnings] = [[], [], []];
	define("location", { origin: ORIGIN, href: `${ORIGIN}/page`, pathname: "/page", search: "" });
	define("document", { readyState: "complete" });
	define("navigator", { serviceWorker: browser() });
	define("dispatchEvent", ({ type, detail }: CustomEvent<Refused>) => type === "quaestor-refused" && refused.push(detail));
	console.warn = (text: string) => void warnings.push(text);
});
afterEach(() => void (console.warn = warn));

for (const state of ["active", "waiting", "installing"] as const) {
	test(`a worker of the site that is ${state} stays, and the page receives the remedy`, async () => {
		registered = { scope: `${ORIGIN}/`, [state]: { scriptURL: SITES } };
		assert.equal(await register(OURS), undefined);
		assert.deepEqual(calls, [], "nothing is registered in its place");
		assert.deepEqual(refused, [{ worker: SITES, scope: `${ORIGIN}/`, remedy: REMEDY }]);
		assert.equal(warnings.length, 1);
		assert.ok(warnings[0]!.includes(SITES) && warnings[0]!.includes(REMEDY));
	});
}

test("a worker that the site registers meanwhile gets its place back", async () => {
	define("navigator", { serviceWorker: browser(SITES) });
	assert.equal(await register(OURS), undefined);
	assert.deepEqual(calls, [OURS, SITES]);
	assert.equal(registered!.active!.scriptURL, SITES);
	assert.deepEqual(refused, [{ worker: SITES, scope: `${ORIGIN}/`, remedy: REMEDY }]);
});

test("the site's worker is replaced if the page says so", async () => {
	registered = { scope: `${ORIGIN}/`, active: { scriptURL: SITES } };
	assert.equal(await register(OURS, { replace: true }), registered);
	assert.deepEqual(calls, [OURS]);
	assert.deepEqual(refused, []);
});

test("our own worker is no foreign one, whatever its query", async () => {
	registered = { scope: `${ORIGIN}/`, active: { scriptURL: `${ORIGIN}/quaestor/worker.js?handles=/old/` } };
	assert.equal(await register(OURS), registered);
	assert.deepEqual(calls, [OURS]);
	assert.deepEqual(refused, []);
});

test("a browser without workers, and one that refuses the script, are left alone", async () => {
	define("navigator", {});
	assert.equal(await register(OURS), undefined);
	assert.deepEqual(warnings, []);
	define("navigator", { serviceWorker: { ...browser(), register: () => Promise.reject(Error("404")) } });
	assert.equal(await register(OURS), undefined);
	assert.equal(warnings.length, 1);
	assert.deepEqual(refused, []);
});

/** Worker scope of a script, with `self.quaestor` of a site that imports ours. */
const scope = (pathname: string, search: string, quaestor?: string): void => {
	define("location", { pathname, search });
	define("self", { quaestor });
};

test("a site that imports the script sets the rules", () => {
	for (const rules of ["handles=/data/", ""]) {
		scope("/sw.js", "?handles=/of-the-site/", rules);
		assert.equal(imported(), true);
		assert.equal(ruled().toString(), new URLSearchParams(rules).toString());
	}
	// A site may call its own worker as ours.
	scope("/worker.js", "?handles=/of-the-site/", "handles=/data/");
	assert.equal(imported(), true);
	assert.deepEqual(ruled().getAll("handles"), ["/data/"]);
});

test("a site that imports the script without rules has none: the query of its own worker is no rule", () => {
	scope("/sw.js", "?handles=/of-the-site/");
	assert.equal(imported(), true);
	assert.equal(ruled().toString(), "");
});

test("a script at its own address has the rules of its query", () => {
	scope("/quaestor/worker.js", "?handles=/api/");
	assert.equal(imported(), false);
	assert.deepEqual(ruled().getAll("handles"), ["/api/"]);
});

/** Return the things that a script takes from the site when a worker is installed, activated and called. */
const taken = async (script: string, pathname: string, quaestor?: string): Promise<string[]> => {
	const listeners: Record<string, (event: object) => void> = {};
	const took: string[] = [];
	const takes = (name: string) => async () => void took.push(name);
	define("location", { origin: ORIGIN, pathname, search: "" });
	define("caches", { open: async () => ({ match: async () => undefined }), keys: async () => [] });
	define("self", {
		quaestor,
		addEventListener: (name: string, listener: (event: object) => void) => (listeners[name] = listener),
		skipWaiting: takes("the place of the worker before"),
		clients: { claim: takes("the pages") },
		registration: { unregister: takes("the registration") },
	});
	await import(`../src/${script}.ts?${pathname}`);
	const works: Promise<unknown>[] = [];
	const event = { data: "skip waiting", waitUntil: (work: Promise<unknown>) => works.push(work) };
	for (const name of ["install", "message", "activate"]) listeners[name]?.({ ...event, addRoutes: takes("the routes") });
	await Promise.all(works);
	return took.sort();
};

for (const [script, all] of [
	["worker", ["the pages", "the place of the worker before", "the routes"]],
	["noop_worker", ["the place of the worker before", "the registration"]],
] as const) {
	test(`${script}.ts takes nothing from a site that imports it`, async () => {
		assert.deepEqual(await taken(script, "/sw.js", "handles=/data/"), []);
		assert.deepEqual(await taken(script, "/quaestor/worker.js"), all, "by itself it does");
	});
}
