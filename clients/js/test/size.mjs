/** What the page module weighs, minified and compressed with gzip; fails above the limit. */
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const LIMIT = 4_900;
const size = gzipSync(readFileSync(new URL("../dist/quaestor.min.js", import.meta.url)), { level: 9 }).length;
console.log(`dist/quaestor.min.js: ${size} bytes of at most ${LIMIT}`);
process.exitCode = size > LIMIT ? 1 : 0;
