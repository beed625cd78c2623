/** Sizes of page module, worker and live queries over a socket and over HTTP, minified and compressed with gzip; fails above the limits. */
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

for (const [name, limit] of [["quaestor.min.js", 4_350], ["worker.min.js", 6_110], ["live.min.js", 5_340], ["live_http.min.js", 4_490]]) {
	const size = gzipSync(readFileSync(new URL(`../dist/${name}`, import.meta.url)), { level: 9 }).length;
	console.log(`dist/${name}: ${size} bytes of at most ${limit}`);
	if (size > limit) process.exitCode = 1;
}
