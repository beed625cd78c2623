/**
 * Look-ups in a sketch: the first line is its body in base64, each further one a resource in JSON; the answer is one character for
 * each, `1` if the sketch has it.
 */
import { createInterface } from "node:readline";
import { loadLongDigest, readSketch, type Sketch } from "../src/sketch.ts";

let sketch: Sketch | undefined;
let first = true;
let found = "";
for await (const line of createInterface({ input: process.stdin })) {
	if (first) sketch = readSketch(Uint8Array.from(Buffer.from(line, "base64")).buffer);
	else {
		const resource = JSON.parse(line) as string;
		// The first long one counts as named, until what it needs is there.
		sketch?.names(resource);
		await loadLongDigest();
		found += sketch?.names(resource) ? "1" : "0";
	}
	first = false;
}
process.stdout.write(found);
