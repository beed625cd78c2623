/** Cuts: two accounts, by results and by events. Prints sums that do not add up, the amounts, and the number of results. */
import { connect, type ResultStream } from "../src/live.ts";

const [url, collection, sum] = process.argv.slice(2) as [string, string, string];
const say = (name: string, value: unknown) => console.log(JSON.stringify([name, value]));
const db = connect(url, { ping: 500 });
const accounts = ["a", "b"];
const amounts = (name: string, values: unknown[]) => {
	if (values.every((value) => typeof value === "number")) {
		say(name, values);
		if (checked && (values[0] as number) + (values[1] as number) !== Number(sum)) say("wrong", [name, values]);
	}
};
let checked = true;
let results = 0;

db.cut();
const streams: ResultStream[] = [];
for (const account of accounts) streams.push(db.collection(collection).find({ account }).resultStream());
for (const stream of streams)
	stream.subscribe(
		() => {
			say("results", ++results);
			amounts("rows", streams.map((each) => each.latest()?.[0]?.["amount"]));
		},
		(error) => say("error", error.message),
	);
const own: Record<string, unknown> = {};
for (const account of accounts)
	db.collection(collection)
		.find({ account })
		.eventStream(
			(item) => {
				own[account] = "gap" in item ? item.data?.[0]?.["amount"] : item.data["amount"];
				// Behind the events of the other account, which come in the same turn.
				queueMicrotask(() => amounts("events", accounts.map((name) => own[name])));
			},
			(error) => say("error", error.message),
		);

process.stdin.on("data", (text) => {
	for (const line of String(text).trim().split("\n")) {
		if (line === "off" || line === "on") {
			// From here on Python writes to one account alone.
			checked = false;
			db.cut(line === "on");
			say(line, "done");
		} else if (line === "end") {
			db.close();
			say("end", "closed");
			process.exit(0);
		}
	}
});
