/**
 * Digest of a Cache Sketch key of at most 128 bytes: 128 bits of XXH3 with seed 0, without WebAssembly and without BigInt.
 *
 * A number of 64 bits is two halves of `lanes`, the lower one first; functions take the place of the lower one. The digest grows in 0
 * and 4, and is made in 0 and 2, of which the latter is scratch before. No object is made for a digest.
 *
 * Source: the xxHash specification, `doc/xxhash_spec.md` of the xxHash project, XXH3 128-bit variant.
 */

import { bytes, SECRET } from "./secret.ts";

const start = new DataView(bytes(atob(SECRET)).buffer);
const HALF = 0x1_0000_0000;
/** The digest, what is needed on the way, and the eight numbers that a long key is mixed into. */
export const lanes = new Int32Array(22);
/** The digest that was made last in 16 bits each, the least significant first, as all browsers' machines have it. */
export const digest = new Uint16Array(lanes.buffer, 0, 8);

/** Upper half of a product: what is lost of it in a double is less than the half of it that is taken away. */
export const upper = (a: number, b: number): number =>
	Math.round(((a >>> 0) * (b >>> 0) - (Math.imul(a, b) >>> 0)) / HALF);

export const add = (lane: number, low: number, top: number): void => {
	const sum = (lanes[lane]! >>> 0) + (low >>> 0);
	lanes[lane] = sum;
	lanes[lane + 1]! += top + Math.floor(sum / HALF);
};

/** Add a product's lower 64 bits. */
export const addProduct = (lane: number, low: number, top: number, low2: number, top2: number): void =>
	add(lane, Math.imul(low, low2), upper(low, low2) + Math.imul(low, top2) + Math.imul(top, low2));

const set = (lane: number, low: number, top: number): void => {
	lanes[lane] = low;
	lanes[lane + 1] = top;
};

export const multiply = (lane: number, low: number, top: number): void => {
	const was = lanes[lane]!;
	const wasTop = lanes[lane + 1]!;
	set(lane, 0, 0);
	addProduct(lane, was, wasTop, low, top);
};

export const avalanche = (lane: number): void => {
	// h ^= h >>> 37; h *= 0x165667919E3779F9; h ^= h >>> 32
	lanes[lane]! ^= lanes[lane + 1]! >>> 5;
	multiply(lane, 0x9e3779f9, 0x16566791);
	lanes[lane]! ^= lanes[lane + 1]!;
};

/** Add a product of 128 bits, its two halves combined by exclusive or. */
export const addFolded = (lane: number, low: number, top: number, low2: number, top2: number): void => {
	const middle = upper(low, low2) + (Math.imul(low, top2) >>> 0) + (Math.imul(top, low2) >>> 0);
	const rest = (Math.imul(top, top2) >>> 0) + upper(low, top2) + upper(top, low2) + Math.floor(middle / HALF);
	add(lane, Math.imul(low, low2) ^ rest, middle ^ (upper(top, top2) + Math.floor(rest / HALF)));
};

const mixHalf = (text: DataView, secret: DataView, lane: number, i: number, j: number, from: number): void => {
	const word = (at: number): number => text.getInt32(i + at, true) ^ secret.getInt32(from + at, true);
	addFolded(lane, word(0), word(4), word(8), word(12));
	set(2, text.getInt32(j, true), text.getInt32(j + 4, true));
	add(2, text.getInt32(j + 8, true), text.getInt32(j + 12, true));
	lanes[lane]! ^= lanes[2]!;
	lanes[lane + 1]! ^= lanes[3]!;
};

export const mix = (text: DataView, secret: DataView, i: number, j: number, from: number): void => {
	mixHalf(text, secret, 0, i, j, from);
	mixHalf(text, secret, 4, j, i, from + 16);
};

export const begin = (size: number): void => {
	lanes.fill(0);
	addProduct(0, size, 0, 0x85ebca87, 0x9e3779b1);
};

export const end = (size: number): Uint16Array => {
	set(2, 0, 0);
	addProduct(2, size, 0, 0x27d4eb4f, 0xc2b2ae3d);
	addProduct(2, lanes[0]!, lanes[1]!, 0x85ebca87, 0x9e3779b1);
	addProduct(2, lanes[4]!, lanes[5]!, 0xc2b2ae63, 0x85ebca77);
	add(0, lanes[4]!, lanes[5]!);
	avalanche(0);
	avalanche(2);
	// The negative of it.
	lanes[3] = ~lanes[3]! + Number(!lanes[2]);
	lanes[2] = -lanes[2]!;
	return digest;
};

/**
 * The 128 bits of XXH3 with seed 0, as eight numbers of 16 bits, the least significant first; overwritten by the next one.
 *
 * @param text what is hashed, of which the first `size`, 17 to 128, count.
 */
export const xxh128 = (text: DataView, size: number): Uint16Array => {
	begin(size);
	for (let i = (size - 1) & ~31; i >= 0; i -= 32) mix(text, start, i >> 1, size - 16 - (i >> 1), i);
	return end(size);
};
