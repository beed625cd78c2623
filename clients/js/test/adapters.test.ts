/** Libraries that show a live query of a real endpoint: prints what each shows, a line each, as Python's test asks for it. */
import { createCollection } from "@tanstack/db";
import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { connect } from "../src/live.ts";
import { liveCollection } from "../src/tanstack_db.ts";
import { liveQuery } from "../src/tanstack_query.ts";
import { createElement } from "react";
import { act, create } from "react-test-renderer";
import { useLive } from "../examples/react_hook.ts";
import { live } from "../examples/svelte_store.ts";

interface Item {
	_id: number;
	n: number;
}

const [url, name] = process.argv.slice(2) as [string, string];
const say = (shown: string, value: unknown) => console.log(JSON.stringify([shown, value]));
const db = connect(url);
const query = db.collection(name).find().descending("n").limit(3);
const refused = db.collection(name).find({ $where: "1" });

const collection = createCollection(liveCollection<Item>(query));
/** The records without the fields that the library adds. */
const records = () => collection.toArray.map((item) => Object.fromEntries(Object.entries(item).filter(([name]) => !name.startsWith("$"))) as unknown as Item);
const shown = collection.subscribeChanges(() => say("db", records().toSorted((a, b) => b.n - a.n || a._id - b._id)), {
	includeInitialState: true,
});
const broken = createCollection(liveCollection(refused));
broken.preload().catch((error) => say("db refused", error.status));

const client = new QueryClient();
const observer = new QueryObserver(client, liveQuery<Item>(["window"], query));
let left = observer.subscribe(({ data }) => data && say("query", data satisfies Item[]));
client.fetchQuery({ ...liveQuery(["refused"], refused), retry: false }).catch((error) => say("query refused", error.status));

const error = console.error;
console.error = (text: unknown, ...rest: unknown[]) => /deprecated/.test(String(text)) || error(text, ...rest);
const Rows = () => {
	const rows = useLive<Item>(query);
	if (rows) say("react", rows);
	return null;
};
Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true });
let root: ReturnType<typeof create> | undefined;
const mount = () => act(() => void (root = create(createElement(Rows))));
await mount();
Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: false });

let unsubscribe = live<Item>(query).subscribe((rows) => say("svelte", rows));

process.stdin.on("data", async (text) => {
	for (const line of String(text).trim().split("\n")) {
		if (line === "leave") {
			shown.unsubscribe();
			await collection.cleanup();
			left();
			root?.unmount();
			unsubscribe();
			say("leave", true);
		} else if (line === "return") {
			left = observer.subscribe(({ data, isFetching }) => data && !isFetching && say("query", data));
			say("return", true);
		} else if (line === "end") {
			left();
			client.clear();
			db.close();
			say("end", "closed");
			process.exit(0);
		}
	}
});
