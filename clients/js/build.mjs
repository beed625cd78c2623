/** Bundles the page module, the service worker and what registers it: for the npm package, and for the middleware to serve. */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";
import { minify } from "terser";

const path = (name) => new URL(name, import.meta.url).pathname;
const sources = createHash("sha256");
for (const name of readdirSync(path("src")).sort()) sources.update(readFileSync(path(`src/${name}`)));
/** What the files are built of, beside them: in each it would be carried by every page. */
writeFileSync(path("../../middleware/browser/sources.sha256"), `${sources.digest("hex")}\n`);

/** What a page loads when it is needed stays a file beside it. */
const apart = {
	name: "apart",
	setup: ({ onResolve }) =>
		onResolve({ filter: /^\.\// }, ({ kind, path: name }) =>
			kind === "dynamic-import" ? { path: name.replace(/\.ts$/, ".js"), external: true } : undefined,
		),
};

/** Names that only these modules use: neither browsers, users of the client nor header fields do. */
const OWN =
	/^(?:again|age|answer|asked|changed|dateBy|etag|failures|first|flat|forget|fresh|gone|hear|held|keep|known|latest|learn|left|loading|look|made|names|off|older|partition|parts|personal|raw|read|ready|recommended|retryAt|shared|shows|takes|time|until|written)$/;

const bundles = {
	client: ["dist/quaestor.min.js", "../../middleware/browser/client.js"],
	long_digest: ["../../middleware/browser/long_digest.js"],
	worker: ["dist/worker.min.js", "../../middleware/browser/worker.js"],
	register: ["dist/register.min.js", "../../middleware/browser/register.js"],
	live: ["dist/live.min.js", "../../quaestor/live/websocket/client.js"],
	live_http: ["dist/live_http.min.js", "../../quaestor/live/websocket/http/client.js"],
	noop_worker: ["dist/noop_worker.min.js", "../../middleware/browser/noop_worker.js"],
};
for (const [name, outputs] of Object.entries(bundles)) {
	// A worker's script is a classic one: all browsers take those.
	const classic = name.endsWith("worker");
	const { outputFiles } = await build({
		entryPoints: [path(`src/${name}.ts`)],
		bundle: true,
		// Names and blanks are the other's, which shortens them better when it gets them whole.
		minifySyntax: true,
		format: classic ? "iife" : "esm",
		target: "es2022",
		legalComments: "none",
		logLevel: "error",
		// Users of live queries read many of the same names.
		...(!name.startsWith("live") && { mangleProps: OWN }),
		// A worker cannot load anything later.
		define: { BUNDLE: JSON.stringify(classic ? "worker" : "page") },
		plugins: [apart],
		write: false,
	});
	const compress = { passes: 3, pure_getters: true, unsafe_arrows: true, unsafe_comps: true };
	const { code } = await minify(outputFiles[0].text, { module: !classic, toplevel: true, ecma: 2020, compress });
	for (const output of outputs) writeFileSync(path(output), code);
}
