/** Code of users of live queries, compiled as `user.ts` is, with the real types of the libraries. Nothing of it runs. */
import { createCollection } from "@tanstack/db";
import { QueryClient, queryOptions, useQuery } from "@tanstack/react-query";
import { connect } from "quaestor-client/live";
import { connect as connectHttp } from "quaestor-client/live-http";
import { liveCollection } from "quaestor-client/tanstack-db";
import { liveQuery } from "quaestor-client/tanstack-query";
import { useLive } from "./react_hook.ts";
import { live } from "./svelte_store.ts";

interface Item {
	_id: string;
	price: number;
}

const db = connect("wss://shop.example/live", { share: "ann", token: "secret" });
const query = db.collection("items").find({ tag: "tea" });
export const collection = createCollection(liveCollection<Item>(query));
export const collectionWithWrites = createCollection({
	...liveCollection<Item>(query),
	id: "items",
	onInsert: async ({ transaction }) => transaction.mutations[0]?.modified.price,
});
export const price: number | undefined = collection.get("a")?.price;

export const Items = (): number | undefined => {
	const plain = useQuery(liveQuery<Item>(["tea"], query));
	const shared = useQuery(queryOptions({ ...liveQuery<Item>(["tea"], query), select: (rows) => rows.length }));
	const rows = useLive<Item>(query, (error) => console.log(error.message));
	return plain.data?.[0]?.price ?? shared.data ?? rows?.[0]?.price;
};
export const fetched: Promise<Item[]> = new QueryClient().fetchQuery(liveQuery<Item>(["tea"], query));
live<Item>(query).subscribe((rows) => rows[0]?.price);
live<Item>(db.collection("items").aggregate([{ $sort: { price: 1 } }], { collation: { locale: "de" } })).subscribe((rows) => rows[0]?.price);
const http = connectHttp("https://shop.example/live", { token: async () => "secret", fetch: (url, options) => fetch(url, { ...options, credentials: "include" }) });
export const cheap = createCollection(liveCollection<Item>(http.collection("items").find({ price: { $lt: 3 } })));
