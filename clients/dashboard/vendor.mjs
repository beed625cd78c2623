/** Copies the charting library into the wheel's files, with its licence, and says which version it is. */
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";

const from = (name) => new URL(`node_modules/uplot/${name}`, import.meta.url);
const folder = new URL("../../quaestor/dashboard/assets/vendored/", import.meta.url);
const { version, license, homepage } = JSON.parse(readFileSync(from("package.json")));
mkdirSync(folder, { recursive: true });
copyFileSync(from("dist/uPlot.iife.min.js"), new URL("uPlot.iife.min.js", folder));
copyFileSync(from("dist/uPlot.min.css"), new URL("uPlot.min.css", folder));
copyFileSync(from("LICENSE"), new URL("uPlot.LICENSE", folder));
writeFileSync(new URL("VERSIONS", folder), `uPlot ${version}, ${license}, ${homepage}\n`);
