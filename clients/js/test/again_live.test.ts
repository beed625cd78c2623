/** Streams through failures that may pass: prints results and events, and the error that ends a stream. */
import { connect } from "../src/live.ts";
import { connect as connectHttp } from "../src/live_http.ts";

/** credentials: "fresh": another token each time; any other text: this token; none: no token. */
const [url, collection, credentials] = process.argv.slice(2) as [string, string, string | undefined];
const say = (name: string, value: unknown) => console.log(JSON.stringify([name, value]));
let asked = 0;
const token = credentials === "fresh" ? async () => `${asked++}` : credentials;
const options = token === undefined ? {} : { token };
const socket = url.startsWith("ws");
const db = socket ? connect(url, options) : connectHttp(url, options);
const query = db.collection(collection).find().ascending("_id");
const failed = ({ status, message }: { status: number; message: string }) => say("error", [status, message]);

query.resultStream((rows) => say("rows", rows), failed);
if (socket) {
	const events: unknown[] = [];
	query.eventStream((item) => {
		events.push("gap" in item ? { gap: item.data } : { [item.matchType]: item.data });
		say("events", events);
	}, failed);
}

process.stdin.on("data", (text) => {
	for (const line of String(text).trim().split("\n")) {
		if (line === "list") query.resultList().catch((error) => say("list", error.status));
		else if (line === "twice") query.resultStream({ reconnect: 2 }, () => {}, (error) => say("twice", error.status));
		else if (line === "end") {
			db.close();
			say("end", "closed");
			process.exit(0);
		}
	}
});
