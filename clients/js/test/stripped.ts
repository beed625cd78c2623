/** A module of the client without its types, as a browser takes it: its name comes in, JavaScript goes out. */
import { readFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { createInterface } from "node:readline";

for await (const name of createInterface({ input: process.stdin })) {
	process.stdout.write(`${JSON.stringify(stripTypeScriptTypes(readFileSync(new URL(`../src/${name}`, import.meta.url), "utf8")))}\n`);
}
