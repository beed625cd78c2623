/** Fetchers for libraries that keep answers themselves: plain functions, which need none of them. */

import type { Client, Init } from "./client.ts";

/** An answer whose status is not 2xx. */
export class AnswerError extends Error {
	override readonly name = "AnswerError";
	readonly answer: Response;

	constructor(answer: Response) {
		super(`status ${answer.status} of ${answer.url}`);
		this.answer = answer;
	}
}

/** The JSON of an answer; undefined of an empty one (204). Throws an `AnswerError` where the status is not 2xx. */
export const readJson = async <T = unknown>(client: Client, url: string, init?: Init): Promise<T> => {
	const answer = await client.fetch(url, init);
	if (!answer.ok) throw new AnswerError(answer);
	return (answer.status === 204 ? undefined : await answer.json()) as T;
};

/** For SWR: `useSWR<Flight[]>("/flights", swrFetcher(quaestor))`. A key is a URL, or an array that begins with one. */
export const swrFetcher =
	<T = unknown>(client: Client, init?: Init) =>
	(key: string | readonly [string, ...unknown[]]): Promise<T> =>
		readJson<T>(client, typeof key === "string" ? key : key[0], init);

/** For TanStack Query: `useQuery({ queryKey: ["/flights"], queryFn: queryFn<Flight[]>(quaestor) })`. The key begins with the URL. */
export const queryFn =
	<T = unknown>(client: Client, init?: Init) =>
	({ queryKey, signal }: { queryKey: readonly unknown[]; signal?: AbortSignal }): Promise<T> =>
		readJson<T>(client, String(queryKey[0]), signal ? { ...init, signal } : init);
