/**
 * Names of URLs, as the client computes them: one JSON array `[path, query]` a line comes in, one JSON string a line goes out.
 */
import { createInterface } from "node:readline";
import { resource } from "../src/resource.ts";

const names: string[] = [];
for await (const line of createInterface({ input: process.stdin })) {
	const [path, query] = JSON.parse(line) as [string, string];
	names.push(JSON.stringify(resource(path, query)));
}
process.stdout.write(`${names.join("\n")}\n`);
