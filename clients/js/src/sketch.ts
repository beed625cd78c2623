/**
 * The Cache Sketch as a client reads it: a flat Bloom filter of the resources that may have a stale copy somewhere.
 *
 * Bytes: `docs/sketch_format.md`.
 */

import { loads } from "./bundle.ts";
import { SALT } from "./secret.ts";
import { xxh128 } from "./xxh128.ts";

const HEADER = 40;
const SLICES = 8;
const WIDTH = 1 << 15;
/** Characters of a resource, with those of the salt. */
const SHORT = 128;

const key = new Uint8Array(SHORT);
const text = new DataView(key.buffer);


let longDigest: ((resource: string) => Uint16Array) | undefined;
let loading: Promise<void> | undefined;

/** Have the digests of long resources made by this. */
export const useLongDigest = (made: typeof longDigest): void => {
	longDigest = made;
};

/** Load what makes the digests of long resources. Until it is there, and if it does not come, they count as named. */
export const loadLongDigest = (): Promise<void> =>
	(loading ??= import("./long_digest.ts").then((module) => void (longDigest = module.longDigest)).catch(() => {}));

const digestOf = (resource: string): Uint16Array | undefined => {
	const salted = SALT + resource;
	const size = salted.length;
	if (size > SHORT) {
		if (loads) void loadLongDigest();
		return longDigest?.(resource);
	}
	for (let i = 0; i < size; i++) key[i] = salted.charCodeAt(i);
	return xxh128(text, size);
};

export interface Sketch {
	/** The bytes that it was read from. */
	readonly raw: ArrayBuffer;
	/** Whether a resource may have a stale copy: never a false no, a false yes at the filter's rate of false positives. */
	names(resource: string): boolean;
}

/** The sketch in these bytes; undefined if they are anything else: cut, of another format, a page of HTML. */
export const readSketch = (raw: ArrayBuffer): Sketch | undefined => {
	if (raw.byteLength <= HEADER) return;
	const bits = new Uint8Array(raw, HEADER);
	// Of 64 bits each, the lower ones first, as all browsers' machines have it.
	const [slices, width] = Array.from(new BigUint64Array(raw, 8, 2), Number) as [number, number];
	if (!slices || slices > SLICES || !width || width >= WIDTH || raw.byteLength !== HEADER + (slices * width) / 8) return;
	return {
		raw,
		names: (resource) => {
			const digest = digestOf(resource);
			for (let slice = 0; digest && slice < slices; slice++) {
				// Sixteen bits each, the first of the two bytes being the lower one.
				const two = digest[7 - slice]!;
				const position = slice * width + (((two << 8) & 0xffff) | (two >> 8)) % width;
				if (!((bits[position >> 3]! >> (position & 7)) & 1)) return false;
			}
			return true;
		},
	};
};
