/** The package as npm would publish it: what is in it, whether its types resolve, and whether it works where it is installed. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { build } from "esbuild";
import { publint } from "publint";
import { formatMessage } from "publint/utils";

const root = new URL("..", import.meta.url).pathname;
const npm = join(dirname(dirname(process.execPath)), "lib/node_modules/npm/bin/npm-cli.js");
const run = (folder, ...command) =>
	execFileSync(process.execPath, command, { cwd: folder, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
const bin = (name, file) => join(root, "node_modules", name, file);

const folder = mkdtempSync(join(tmpdir(), "quaestor-package-"));
try {
	const [packed] = JSON.parse(run(root, npm, "pack", "--json", "--silent", "--pack-destination", folder));
	const files = packed.files.map(({ path }) => path);
	const entries = ["client", "fetchers", "live", "live_http", "react", "registration", "stale", "tanstack_db", "tanstack_query"];
	const behind = ["live_database", "live_options", "live_polling", "live_query", "live_rows", "live_streams", "options"];
	for (const name of entries) {
		for (const ending of ["js", "d.ts"]) assert.ok(files.includes(`dist/${name}.${ending}`), `dist/${name}.${ending}`);
	}
	assert.deepEqual(files.filter((path) => !path.startsWith("dist/")).sort(), ["LICENSE", "README.md", "package.json"]);
	assert.equal(readFileSync(join(root, "LICENSE"), "utf8"), readFileSync(join(root, "../../LICENSE"), "utf8"));
	// Internal modules have no types.
	const declared = files.filter((path) => path.endsWith(".d.ts"));
	assert.deepEqual(declared.sort(), [...entries, ...behind].sort().map((name) => `dist/${name}.d.ts`));
	for (const path of declared) {
		assert.doesNotMatch(readFileSync(join(root, path), "utf8"), /@internal|\b(?:hear|Known|Said|takes|Watche[dr]|Within)\b/, path);
	}
	const tarball = join(folder, packed.filename);

	const { messages, pkg } = await publint({ strict: true, level: "warning", pack: { tarball: new Uint8Array(readFileSync(tarball)).buffer } });
	assert.deepEqual(messages.map((message) => formatMessage(message, pkg)), []);
	const scripts = ["worker", "noop-worker", "package.json"];
	const types = [bin("@arethetypeswrong/cli", "dist/index.js"), tarball, "--profile", "esm-only", "--quiet"];
	run(root, ...types, "--exclude-entrypoints", ...scripts);

	writeFileSync(join(folder, "package.json"), '{ "type": "module", "private": true }');
	run(folder, npm, "install", "--silent", "--offline", "--no-audit", "--no-fund", tarball);
	writeFileSync(
		join(folder, "smoke.mjs"),
		`import { Client } from "quaestor-client";
		import { queryFn, swrFetcher } from "quaestor-client/fetchers";
		import { connect } from "quaestor-client/live";
		import { register } from "quaestor-client/registration";
		import { onStale } from "quaestor-client/stale";
		console.warn = () => {};
		globalThis.location = { origin: "https://app.test" };
		const client = new Client({ sketch: "https://app.test/quaestor/sketch", fetch: async () => Response.json(1), wait: 0 });
		onStale(client, () => {});
		if (await swrFetcher(client)("https://app.test/a") !== 1 || !register || !queryFn) throw Error("it does not work");`,
	);
	// The program ends by itself, and only the hook needs React.
	run(folder, "smoke.mjs");

	for (const name of ["@standard-schema", "@tanstack", "@types", "react", "react-test-renderer", "svelte", "swr"]) {
		symlinkSync(join(root, "node_modules", name), join(folder, "node_modules", name));
	}
	for (const name of ["user.ts", "user.tsconfig.json", "live_user.ts", "live_user.tsconfig.json"])
		copyFileSync(join(root, "test", name), join(folder, name));
	for (const name of ["react_hook.ts", "svelte_store.ts"]) copyFileSync(join(root, "examples", name), join(folder, name));
	for (const name of ["user", "live_user"]) run(folder, bin("typescript", "bin/tsc"), "-p", `${name}.tsconfig.json`);
	run(root, "--no-warnings", "--test", "test/react.test.ts");
	const output = await build({ stdin: { contents: 'import "quaestor-client"', resolveDir: folder }, bundle: true, write: false, logLevel: "error" });
	assert.equal(output.outputFiles[0].text.replace(/\(\(\) => \{\s*\}\)\(\);/, "").trim(), "", "it has side effects");
	console.log(`${packed.filename}: ${packed.size} bytes, works where it is installed`);
} finally {
	rmSync(folder, { recursive: true });
}
