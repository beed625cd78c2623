/** Answers kept in a page's memory, within a number of bytes; those not used for longest go first. */

import { type Lifetime, varies } from "./fields.ts";

export interface Copy extends Lifetime {
	/** The answer, made anew for each reader. */
	answer: () => Response;
	/** Header fields of the request that it is for, of those that `Vary` names. */
	asked: [string, string | null][];
	size: number;
}

/** URLs whose newest version is remembered. */
const VERSIONS = 10_000;
/** An answer takes at most this part of the memory. */
const LARGEST = 4;
/** Bytes that are counted for an answer beside its body. */
const OVERHEAD = 1000;

/** What a page keeps. */
export interface Copies {
	/** The copy of a URL that answers this request. */
	find(url: string, request: Request): Copy | undefined;
	/** The partition that the newest version of a URL named; undefined if none was seen. */
	partition(url: string): string | undefined;
	/** Whether an answer may be another version than the newest that was seen, and was sent before it. */
	older(url: string, answer: Response, at: number): boolean;
	/** Remember the version of an answer, and keep a copy when its body has come, if it may be kept. `still`: whether it may then. */
	keep(url: string, request: Request, answer: Response, life: Lifetime, still: () => boolean): void;
	/** Drop all copies, or those that were made for one user. */
	forget(all: boolean): void;
}

/** None yet, of so many bytes at most. */
export const copiesWithin = (limit: number): Copies => {
	const kept = new Map<string, Copy>();
	/** The newest version seen of each URL: its lifetime, and its ETag. */
	const versions = new Map<string, [life: Lifetime, etag: string | null]>();
	const largest = limit / LARGEST;
	let bytes = 0;

	const drop = (url: string): void => {
		bytes -= kept.get(url)?.size ?? 0;
		kept.delete(url);
	};

	return {
		find(url, request) {
			const copy = kept.get(url);
			if (!copy?.asked.every(([name, value]) => request.headers.get(name) === value)) return;
			kept.delete(url);
			kept.set(url, copy);
			return copy;
		},
		partition: (url) => versions.get(url)?.[0].sketch,
		older(url, answer, at) {
			const newest = versions.get(url);
			return !!newest && at < newest[0].at && (!newest[1] || answer.headers.get("etag") !== newest[1]);
		},
		keep(url, request, answer, life, still) {
			const newest = versions.get(url);
			versions.delete(url);
			versions.set(url, newest && newest[0].at > life.at ? newest : [life, answer.headers.get("etag")]);
			if (versions.size > VERSIONS) versions.delete(versions.keys().next().value!);
			if (answer.status !== 200 || Number(answer.headers.get("content-length")) > largest) return;
			const bare = new Response(null, answer);
			const { url: value } = answer;
			const asked = varies(answer).map((name): [string, string | null] => [name, request.headers.get(name)]);
			const put = (body: ArrayBuffer): void => {
				const size = body.byteLength + OVERHEAD;
				if (size > largest || !still() || kept.get(url)!?.at > life.at) return;
				drop(url);
				const made = (): Response => Object.defineProperty(new Response(body, bare), "url", { value });
				kept.set(url, { ...life, answer: made, asked, size });
				bytes += size;
				for (const oldest of kept.keys()) {
					if (bytes <= limit) break;
					drop(oldest);
				}
			};
			// A body that breaks off is the reader's to hear of.
			answer.clone().arrayBuffer().then(put, () => {});
		},
		forget(all) {
			for (const [url, copy] of kept) if (all || copy.personal) drop(url);
		},
	};
};
