/** Bundles the page module, the service worker and what registers it: for the npm package, and for the middleware to serve. */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { build } from "esbuild";

const path = (name) => new URL(name, import.meta.url).pathname;
const sources = createHash("sha256");
for (const name of readdirSync(path("src")).sort()) sources.update(readFileSync(path(`src/${name}`)));
const bundles = { client: "quaestor.min", worker: "worker.min", register: "register.min", noop_worker: "noop_worker.min" };
for (const [name, output] of Object.entries(bundles)) {
	for (const outfile of [path(`dist/${output}.js`), path(`../../middleware/browser/${name}.js`)]) {
		await build({
			entryPoints: [path(`src/${name}.ts`)],
			banner: { js: `/* quaestor ${sources.copy().digest("hex").slice(0, 16)} */` },
			bundle: true,
			minify: true,
			// A worker's script is a classic one: all browsers take those.
			format: name.endsWith("worker") ? "iife" : "esm",
			target: "es2022",
			legalComments: "none",
			logLevel: "error",
			outfile,
		});
	}
}
