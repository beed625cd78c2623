/**
 * The Cache Sketch as a client reads it: a flat Bloom filter of the resources that may have a stale copy somewhere.
 *
 * Bytes: `docs/sketch_format.md`.
 */

import { type Digest, xxh128 } from "./xxh128.ts";

const HEADER = 40;
const SLICES = 8;
const WIDTH = 1 << 15;

/** Before each key: the xxh128 of four zero bytes, which is pybloom_live's salt. */
const SALT = [42, 51, 129, 110, 215, 224, 195, 115, 219, 229, 99, 199, 55, 34, 11, 101];

const digest: Digest = new Int32Array(4);
let buffer = Uint8Array.from({ length: 512 }, (_, i) => SALT[i] ?? 0);

export class Sketch {
	readonly #slices: number;
	readonly #width: number;
	readonly #bits: Uint8Array;

	private constructor(slices: number, width: number, bits: Uint8Array) {
		this.#slices = slices;
		this.#width = width;
		this.#bits = bits;
	}

	/** The sketch in these bytes; undefined if they are anything else: cut, of another format, a page of HTML. */
	static read(body: ArrayBuffer): Sketch | undefined {
		if (body.byteLength <= HEADER) return undefined;
		const view = new DataView(body);
		const slices = view.getUint32(8, true);
		const width = view.getUint32(16, true);
		const whole =
			!view.getUint32(12, true) &&
			!view.getUint32(20, true) &&
			slices >= 1 &&
			slices <= SLICES &&
			width >= 1 &&
			width < WIDTH &&
			body.byteLength === HEADER + (slices * width) / 8;
		return whole ? new Sketch(slices, width, new Uint8Array(body, HEADER)) : undefined;
	}

	/** The bytes that it was read from. */
	get body(): ArrayBuffer {
		return this.#bits.buffer as ArrayBuffer;
	}

	/** Whether a resource may have a stale copy: never a false no, a false yes at the filter's rate of false positives. */
	has(resource: string): boolean {
		const size = SALT.length + resource.length;
		if (size > buffer.length) {
			const larger = new Uint8Array(2 * size);
			larger.set(SALT);
			buffer = larger;
		}
		for (let i = 0; i < resource.length; i++) buffer[SALT.length + i] = resource.charCodeAt(i);
		xxh128(buffer, size, digest);
		for (let slice = 0; slice < this.#slices; slice++) {
			// Sixteen bits each, the first of the two bytes being the lower one.
			const two = digest[slice >> 1]! >>> (slice & 1 ? 0 : 16);
			const position = slice * this.#width + ((((two & 0xff) << 8) | ((two >>> 8) & 0xff)) % this.#width);
			if (!((this.#bits[position >> 3]! >> (position & 7)) & 1)) return false;
		}
		return true;
	}
}
