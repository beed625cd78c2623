/** Whether bodies are sketches: one in base64 a line comes in; the answer is one character for each, `1` if it is one. */
import { createInterface } from "node:readline";
import { readSketch } from "../src/sketch.ts";

let read = "";
for await (const line of createInterface({ input: process.stdin })) {
	read += readSketch(Uint8Array.from(Buffer.from(line, "base64")).buffer) ? "1" : "0";
}
process.stdout.write(read);
