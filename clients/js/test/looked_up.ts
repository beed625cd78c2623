/**
 * Look-ups in a sketch: the first line is its body in base64, each further one a resource in JSON; the answer is one character for
 * each, `1` if the sketch has it.
 */
import { createInterface } from "node:readline";
import { Sketch } from "../src/sketch.ts";

let sketch: Sketch | undefined;
let first = true;
let found = "";
for await (const line of createInterface({ input: process.stdin })) {
	if (first) sketch = Sketch.read(Uint8Array.from(Buffer.from(line, "base64")).buffer);
	else found += sketch?.has(JSON.parse(line) as string) ? "1" : "0";
	first = false;
}
process.stdout.write(found);
