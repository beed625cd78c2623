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

const json = async (client: Client, url: string, init?: Init): Promise<unknown> => {
	const answer = await client.fetch(url, init);
	if (!answer.ok) throw new AnswerError(answer);
	return answer.status === 204 ? undefined : answer.json();
};

/** For SWR: `useSWR("/flights", swrFetcher(quaestor))`. A key is a URL, or an array that begins with one. */
export const swrFetcher =
	(client: Client, init?: Init) =>
	(key: string | readonly [string, ...unknown[]]): Promise<unknown> =>
		json(client, typeof key === "string" ? key : key[0], init);

/** For TanStack Query: `useQuery({ queryKey: ["/flights"], queryFn: queryFn(quaestor) })`. The key begins with the URL. */
export const queryFn =
	(client: Client, init?: Init) =>
	({ queryKey, signal }: { queryKey: readonly unknown[]; signal?: AbortSignal }): Promise<unknown> =>
		json(client, String(queryKey[0]), signal ? { ...init, signal } : init);
