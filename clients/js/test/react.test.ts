/** The hook in components of the real React, on a scripted network and scripted clocks. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createElement } from "react";
import { act, create } from "react-test-renderer";
import { type Shown, useQuaestor } from "../src/react.ts";
import { ORIGIN, World } from "./world.ts";

interface Answer {
	version: number;
}

Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true });
const { error } = console;
console.error = (text: string, ...rest: unknown[]) => /deprecated/.test(text) || error(text, ...rest);
const settled = async (): Promise<void> => {
	for (let i = 0; i < 5; i++) await new Promise((done) => setImmediate(done));
};

test("it shows what it has read, what has become stale is read again, and another URL never shows this one's answer", async () => {
	const world = new World();
	const client = world.client();
	Object.assign(location, { href: `${ORIGIN}/page` });
	const shown: [string | null, Shown<Answer>][] = [];
	const Component = ({ path }: { path: string | null }): null => {
		shown.push([path, useQuaestor<Answer>(client, path && ORIGIN + path)]);
		return null;
	};
	const last = (): Shown<Answer> => shown.at(-1)![1];

	let root!: ReturnType<typeof create>;
	await act(async () => {
		root = create(createElement(Component, { path: "/a" }));
	});
	assert.deepEqual(shown[0]![1], { data: undefined, error: undefined, loading: true });
	await act(settled);
	assert.equal(last().data?.version, 0);
	assert.equal(last().loading, false);

	await act(async () => {
		await client.fetch(`${ORIGIN}/a`, { method: "PUT" });
		await settled();
	});
	assert.equal(last().data?.version, 1);

	world.leaving = () => Promise.reject(new TypeError("Failed to fetch"));
	await act(async () => {
		client.wrote();
		await settled();
	});
	assert.equal(last().data?.version, 1, "the one before stays");
	assert.ok(last().error instanceof TypeError);
	world.leaving = () => {};

	await act(async () => root.update(createElement(Component, { path: "/b" })));
	await act(settled);
	for (const [path, { data }] of shown) if (path === "/b" && data) assert.equal(data.version, 0);
	assert.equal(last().error, undefined);
	await act(async () => root.update(createElement(Component, { path: null })));
	assert.deepEqual(last(), { data: undefined, error: undefined, loading: false });

	const asked = world.count("/b");
	await act(async () => {
		root.unmount();
		client.wrote();
		await settled();
	});
	assert.equal(world.count("/b"), asked, "nothing is read for what is gone");
});
