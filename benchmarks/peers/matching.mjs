// Matches the same queries and records with mingo or sift, one by one, as their users would: compiled once, then tested.
// Usage: node matching.mjs <mingo|sift> <queries.ndjson> <records.ndjson>   prints one JSON object.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [, , library, queriesFile, recordsFile] = process.argv;
const require = createRequire(process.env.PEERS_FROM + "/");
const read = (file) => readFileSync(file, "utf8").trim().split("\n").map((line) => JSON.parse(line));

let compile;
if (library === "mingo") {
  const { Query } = require("mingo");
  compile = (filter) => { const query = new Query(filter); return (record) => query.test(record); };
} else {
  const sift = require("sift");
  compile = sift.default ?? sift;
}

const queries = read(queriesFile).map(compile);
const records = read(recordsFile);
const pass = () => {
  let matches = 0;
  for (const record of records) for (const query of queries) if (query(record)) matches += 1;
  return matches;
};
pass(); // warm up the JIT
const before = process.cpuUsage();
const matches = pass();
const used = process.cpuUsage(before);
const seconds = (used.user + used.system) / 1e6;
console.log(JSON.stringify({
  library,
  version: require(`${library}/package.json`).version,
  node: process.version,
  queries: queries.length,
  records: records.length,
  matches,
  us_per_write: (seconds * 1e6) / records.length,
  matches_per_s: (queries.length * records.length) / seconds,
}));
