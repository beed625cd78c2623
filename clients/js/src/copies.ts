/** Answers kept in a page's memory, within a number of bytes; those not used for longest go first. */

import { type Lifetime, varies } from "./fields.ts";

export interface Copy extends Lifetime {
	/** The answer, made anew for each reader. */
	answer: () => Response;
	/** The fields of its request that `Vary` names. */
	asked: [string, string | null][];
	/** Its ETag; without one it is like no other version. */
	etag: unknown;
	size: number;
}

/** URLs whose newest version is remembered. */
const VERSIONS = 10_000;
/** An answer takes at most this part of the memory. */
const LARGEST = 4;
/** Bytes that are counted for an answer beside its body. */
const OVERHEAD = 1000;

/** The newest version that was seen of a URL. */
interface Version {
	/** When it left the server, at the latest. */
	left: number;
	etag: unknown;
	/** The partition that it named; undefined: it came without a lifetime. */
	partition: string | undefined;
}

/** Whether an answer shows a version of what its URL names, and not only that it cannot be shown now. */
const shows = ({ status }: Response): boolean => status < 429;

/** The copies that a page keeps. */
export interface Copies {
	/** The copy of a URL that answers this request. */
	find(url: string, request: Request): Copy | undefined;
	/** The partition that the newest version of a URL named; undefined if none was seen. */
	partition(url: string): string | undefined;
	/** Whether an answer may be an older version than the newest that was seen: any that lost its lifetime may be. */
	older(url: string, answer: Response, life: Lifetime | undefined): boolean;
	/**
	 * Remember the version of an answer, which drops a copy of another one. If it has a lifetime, keep a copy when its body has come.
	 *
	 * `left`: when it left the server, at the latest; `still`: whether the copy may be kept then.
	 */
	keep(url: string, request: Request, answer: Response, life: Lifetime | undefined, left: number, still: () => boolean): void;
	/** No known answer has left the server later than now. Before the server's time was known, this was uncertain. */
	dateBy(now: number): void;
	/** Drop all copies, or only the copies made for one user. */
	forget(all: boolean): void;
}

/** None yet, of so many bytes at most. */
export const copiesWithin = (limit: number): Copies => {
	const kept = new Map<string, Copy>();
	const versions = new Map<string, Version>();
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
		partition: (url) => versions.get(url)?.partition,
		older(url, answer, life) {
			const newest = versions.get(url);
			if (!newest || answer.headers.get("etag") === newest.etag) return false;
			return life ? life.at < newest.left : newest.partition !== undefined && shows(answer);
		},
		keep(url, request, answer, life, left, still) {
			if (!life && !shows(answer)) return;
			const etag = answer.headers.get("etag") ?? {};
			const newest = versions.get(url);
			versions.delete(url);
			versions.set(url, newest?.left! > left ? newest! : { left, etag, partition: life?.partition });
			if (versions.size > VERSIONS) versions.delete(versions.keys().next().value!);
			if (kept.get(url)?.etag !== etag) drop(url);
			if (!life || answer.status !== 200 || +answer.headers.get("content-length")! > largest) return;
			const bare = new Response(null, answer);
			const { url: value } = answer;
			const asked = varies(answer).map((name): [string, string | null] => [name, request.headers.get(name)]);
			// Nothing in the request names its user: an equal request may come from another user. Cookies cannot be seen.
			if (life.personal && !asked.some(([name, value]) => name === "cookie" || (value && !/^acc/.test(name)))) return;
			const put = (body: ArrayBuffer): void => {
				const size = body.byteLength + OVERHEAD;
				if (size > largest || !still() || versions.get(url)?.etag !== etag) return;
				// Another cache on the way may have confirmed the same version.
				const shows = Math.max(life.shows, kept.get(url)?.shows ?? 0);
				drop(url);
				const made = (): Response => Object.defineProperty(new Response(body, bare), "url", { value });
				kept.set(url, { ...life, shows, answer: made, asked, size, etag });
				bytes += size;
				for (const oldest of kept.keys()) {
					if (bytes <= limit) break;
					drop(oldest);
				}
			};
			// A body that breaks off is the reader's to hear of.
			answer.clone().arrayBuffer().then(put, () => {});
		},
		dateBy(now) {
			for (const version of versions.values()) version.left = Math.min(version.left, now);
		},
		forget(all) {
			for (const [url, copy] of kept) if (all || copy.personal) drop(url);
		},
	};
};
