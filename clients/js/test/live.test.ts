/** The client of live queries against a real endpoint: prints what its streams show, a line each, as Python's test asks for it. */
import { connect } from "../src/live.ts";
import { connect as connectHttp } from "../src/live_http.ts";
import type { LiveEvent, LiveGap, LiveRecord } from "../src/live.ts";

const [url, collection] = process.argv.slice(2) as [string, string];
const say = (name: string, value: unknown) => console.log(JSON.stringify([name, value]));
const db = url.startsWith("ws") ? connect(url, { ping: 500 }) : connectHttp(url);
const items = db.collection(collection);
const find = (filter?: object) => items.find(filter);

const shapes = {
	all: find(),
	some: find({ n: { $lt: 50 } }),
	window: find().descending("n").limit(3),
	page: find().ascending("tag").ascending("n").offset(2).limit(4),
	groups: items.aggregate([{ $group: { _id: "$tag", n: { $sum: "$n" } } }]),
	unnamed: items.aggregate([{ $sort: { n: 1, _id: 1 } }, { $limit: 5 }, { $project: { _id: 0, n: 1 } }]),
	collated: find({ tag: "A" }).collation({ locale: "en", strength: 1 }).ascending("n"),
	built: find().equal("tag", "a").matches("tag", /^A/i).ascending("n"),
};
const streams = Object.fromEntries(Object.entries(shapes).map(([name, query]) => [name, query.resultStream()]));
for (const [name, stream] of Object.entries(streams)) stream.subscribe((rows) => say(name, rows), (error) => say("error", error.message));

/** A list of one's own, by the events alone. */
const own: LiveRecord[] = [];
const follow = async () => {
	for await (const item of find().ascending("n").eventStream()) {
		if ("gap" in item) own.splice(0, own.length, ...((item as LiveGap).data ?? []));
		else {
			const { matchType, data, index } = item as LiveEvent;
			const place = own.findIndex((row) => row["_id"] === data["_id"]);
			if ((place < 0) !== (matchType === "add")) say("error", [item, own]);
			if (place >= 0) own.splice(place, 1);
			if (matchType !== "remove") own.splice(index ?? own.length, 0, data);
		}
		say("own", own);
	}
};
void follow();

process.stdin.on("data", async (text) => {
	for (const line of String(text).trim().split("\n")) {
		if (line === "list") say("list", await find({ n: { $gte: 0 } }).ascending("_id").resultList());
		else if (line === "latest") say("latest", streams["all"]?.latest());
		else if (line === "refused")
			find({ $where: "1" }).resultStream(
				() => say("refused", "no"),
				(error) => say("refused", error.status),
			);
		else if (line === "abort") {
			const aborting = new AbortController();
			find().resultStream({ signal: aborting.signal }, () => aborting.abort(), undefined, () => say("abort", "complete"));
		} else if (line === "end") {
			db.close();
			say("end", "closed");
			process.exit(0);
		}
	}
});
