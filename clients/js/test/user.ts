/** Code of users, compiled against the installed package, with the libraries' real types. Nothing of it runs. */
import { QueryClient, queryOptions, useQuery } from "@tanstack/react-query";
import { Client, type Init, type Options } from "quaestor-client";
import { Client as Minified } from "quaestor-client/min";
import { AnswerError, queryFn, swrFetcher } from "quaestor-client/fetchers";
import { connect, type LiveEvent, type LiveGap, type LiveRecord, type Subscription } from "quaestor-client/live";
import { useQuaestor } from "quaestor-client/react";
import { register } from "quaestor-client/registration";
import { onStale } from "quaestor-client/stale";
import useSWR, { mutate } from "swr";

interface Flight {
	carrier: string;
}

const options: Options = { delta: 10, handles: ({ pathname }) => pathname.startsWith("/flights") };
const init: Init = { level: "strong", headers: { accept: "application/json" } };
export const quaestor = new Client(options);
export const minified = new Minified();

export const Flights = (): string | undefined => {
	const typed = useSWR<Flight[]>("/flights", swrFetcher(quaestor));
	const inferred = useSWR("/flights", swrFetcher<Flight[]>(quaestor, init));
	const keyed = useSWR<Flight[], AnswerError>(["/flights", 5], swrFetcher<Flight[]>(quaestor));
	const query = useQuery<Flight[]>({ queryKey: ["/flights"], queryFn: queryFn(quaestor) });
	const shared = useQuery(queryOptions({ queryKey: ["/flights"], queryFn: queryFn<Flight[]>(quaestor) }));
	const hook = useQuaestor<Flight[]>(quaestor, "/flights");
	const untyped = useQuaestor(quaestor, null);
	// @ts-expect-error: nobody said what it is
	void untyped.data?.carrier;
	return [typed, inferred, keyed, query, shared, hook].map(({ data }) => data?.[0]?.carrier).find(Boolean);
};

const client = new QueryClient();
export const leave: () => void = onStale(quaestor, (url) => {
	void mutate(url);
	void client.invalidateQueries({ queryKey: [url] });
});
export const read: Promise<unknown> = swrFetcher(quaestor)("/flights");
export const status = ({ answer }: AnswerError): number => answer.status;
void register("/quaestor/worker.js", { waiting: (activate) => activate() });

// @ts-expect-error: the service worker's
void quaestor.takes;
// @ts-expect-error: the service worker's
void quaestor.hear;
// @ts-expect-error: of this package
void quaestor.watch;
// @ts-expect-error: the service worker's
void new Client({ shared: true });

const db = connect("wss://shop.example/live", { token: async () => "secret" });
export const shown: Subscription | undefined = db["items"]
	?.find({ tag: "tea" })
	.ascending("price")
	.limit(10)
	.resultStream({ collapse: 200 }, (rows: LiveRecord[]) => console.log(rows));
export const counted = async (): Promise<void> => {
	for await (const item of db.collection("items").find().eventStream({ matchTypes: ["add", "remove"] })) {
		if ("gap" in item) console.log((item satisfies LiveGap).data);
		else console.log((item satisfies LiveEvent).matchType);
	}
};
