/** A client that a module makes in Node.js, where there is no page: the program ends, and requests are sent as they are. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { Client } from "../src/client.ts";
import { onStale } from "../src/stale.ts";

console.warn = (text) => assert.fail(text);
const asked = [];
const server = createServer((request, answer) => {
	asked.push(`${request.method} ${request.url}`);
	answer.setHeader("quaestor-ttl", `60;at=${Date.now()}`).end("1");
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const origin = `http://127.0.0.1:${server.address().port}`;

const client = new Client();
onStale(client, () => {});
for (let i = 0; i < 2; i++) assert.equal(await (await client.fetch(`${origin}/a`)).text(), "1");
await client.fetch(`${origin}/a`, { method: "PUT" });
await assert.rejects(client.fetch("/a"), TypeError, "as fetch does");
assert.deepEqual(asked, ["GET /a", "GET /a", "PUT /a"]);
assert.equal(client.counts.passed, 3);
client.logout();

// Tests of pages bring a location: such a client listens to other tabs.
globalThis.location = { origin };
const listening = new Client({ sketch: `${origin}/quaestor/sketch`, fetch: async () => new Response(null, { status: 404 }) });
assert.ok(listening);
console.warn = () => {};
server.close();
server.closeAllConnections();
