/** Answers kept in a page's memory, within a number of bytes; those not used for longest go first. */

/** The lifetime of an answer, as its `Quaestor-TTL` field gives it to clients with a sketch. */
export interface Lifetime {
	/** When the server sent it, in ms since the epoch by the server's clock. */
	at: number;
	/** When it ends, by the same clock. */
	until: number;
	/** Whether it was made for one user. */
	personal: boolean;
}

export interface Copy extends Lifetime {
	response: Response;
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

/** The lifetime that an answer was given; undefined if none, or a malformed one. */
export const lifetime = (answer: Response): Lifetime | undefined => {
	const match = /^(\d{1,8});at=(\d{1,15})(;private)?$/.exec(answer.headers.get("quaestor-ttl") ?? "");
	if (!match) return undefined;
	const at = Number(match[2]);
	return { at, until: at + Number(match[1]) * 1000, personal: !!match[3] };
};

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
		if (!copy?.asked.every(([name, value]) => request.headers.get(name) === value)) return undefined;
		this.#kept.delete(url);
		this.#kept.set(url, copy);
		return copy;
	}

	/** Whether an answer is another version than the newest that was seen, and was sent before it. */
	older(url: string, answer: Response): boolean {
		const life = lifetime(answer);
		const newest = this.#newest.get(url);
		return !!life && !!newest && life.at < newest[0] && answer.headers.get("etag") !== newest[1];
	}

	/** Keep a copy of an answer when its body has come, if it may be kept in memory. `still`: whether it may then. */
	keep(url: string, request: Request, answer: Response, life: Lifetime, still: () => boolean): void {
		this.#newest.delete(url);
		this.#newest.set(url, [life.at, answer.headers.get("etag")]);
		if (this.#newest.size > VERSIONS) this.#newest.delete(this.#newest.keys().next().value!);
		const names = (answer.headers.get("vary") ?? "")
			.toLowerCase()
			.split(/\s*,\s*/)
			.filter((name) => name);
		// What a page cannot see of its own requests it cannot compare.
		if (answer.status !== 200 || names.some((name) => name === "*" || name === "cookie")) return;
		if (Number(answer.headers.get("content-length") ?? Number.NaN) > this.#limit / LARGEST) return;
		const asked = names.map((name): [string, string | null] => [name, request.headers.get(name)]);
		const { status, statusText, headers, url: finalUrl } = answer;
		const put = (body: ArrayBuffer): void => {
			const size = body.byteLength + OVERHEAD;
			if (size > this.#limit / LARGEST || !still() || (this.#kept.get(url)?.at ?? 0) > life.at) return;
			this.#drop(url);
			const response = new Response(body, { status, statusText, headers });
			Object.defineProperty(response, "url", { value: finalUrl });
			this.#kept.set(url, { ...life, response, asked, size });
			this.#bytes += size;
			for (const oldest of this.#kept.keys()) {
				if (this.#bytes <= this.#limit) break;
				this.#drop(oldest);
			}
		};
		// A body that breaks off is the reader's to hear of.
		answer.clone().arrayBuffer().then(put, () => undefined);
	}

	/** Drop the copies that this says of. */
	forget(which: (copy: Copy) => boolean): void {
		for (const [url, copy] of this.#kept) if (which(copy)) this.#drop(url);
	}

	#drop(url: string): void {
		this.#bytes -= this.#kept.get(url)?.size ?? 0;
		this.#kept.delete(url);
	}
}
