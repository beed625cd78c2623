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

export class Copies {
	readonly #limit: number;
	readonly #kept = new Map<string, Copy>();
	/** The newest version seen of each URL: when it was sent, and its ETag. */
	readonly #newest = new Map<string, [at: number, etag: string | null]>();
	#bytes = 0;

	constructor(limit: number) {
		this.#limit = limit;
	}

	/** The copy of a URL that answers this request. */
	find(url: string, request: Request): Copy | undefined {
		const copy = this.#kept.get(url);
		if (!copy?.asked.every(([name, value]) => request.headers.get(name) === value)) return;
		this.#kept.delete(url);
		this.#kept.set(url, copy);
		return copy;
	}

	/** Whether an answer may be another version than the newest that was seen, and was sent before it. */
	older(url: string, answer: Response, at: number): boolean {
		const newest = this.#newest.get(url);
		return !!newest && at < newest[0] && (!newest[1] || answer.headers.get("etag") !== newest[1]);
	}

	/** Remember the version of an answer, and keep a copy when its body has come, if it may be kept. `still`: whether it may then. */
	keep(url: string, request: Request, answer: Response, life: Lifetime, still: () => boolean): void {
		const newest = this.#newest.get(url);
		this.#newest.delete(url);
		this.#newest.set(url, newest && newest[0] > life.at ? newest : [life.at, answer.headers.get("etag")]);
		if (this.#newest.size > VERSIONS) this.#newest.delete(this.#newest.keys().next().value!);
		const largest = this.#limit / LARGEST;
		if (answer.status !== 200 || Number(answer.headers.get("content-length")) > largest) return;
		const { status, statusText, headers, url: value } = answer;
		const asked = varies(answer).map((name): [string, string | null] => [name, request.headers.get(name)]);
		const put = (body: ArrayBuffer): void => {
			const size = body.byteLength + OVERHEAD;
			if (size > largest || !still() || this.#kept.get(url)!?.at > life.at) return;
			this.#drop(url);
			const made = (): Response =>
				Object.defineProperty(new Response(body, { status, statusText, headers }), "url", { value });
			this.#kept.set(url, { ...life, answer: made, asked, size });
			this.#bytes += size;
			for (const oldest of this.#kept.keys()) {
				if (this.#bytes <= this.#limit) break;
				this.#drop(oldest);
			}
		};
		// A body that breaks off is the reader's to hear of.
		answer.clone().arrayBuffer().then(put, () => {});
	}

	/** Drop all copies, or those that were made for one user. */
	forget(all: boolean): void {
		for (const [url, copy] of this.#kept) if (all || copy.personal) this.#drop(url);
	}

	#drop(url: string): void {
		this.#bytes -= this.#kept.get(url)?.size ?? 0;
		this.#kept.delete(url);
	}
}
