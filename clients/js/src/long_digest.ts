/**
 * Digest of a Cache Sketch key of more than 128 bytes: 128 bits of XXH3 with seed 0.
 *
 * Few keys are so long, so in pages this is a module by itself, which is loaded when the first of them is asked for.
 *
 * Source: the xxHash specification, `doc/xxhash_spec.md` of the xxHash project, XXH3 128-bit variant.
 */

import { bytes, SALT, SECRET } from "./secret.ts";
import { add, addFolded, avalanche, begin, digest, end, lanes, mix, multiply, upper } from "./xxh128.ts";

const secret = new DataView(
	bytes(
		atob(
			`${SECRET}xayDNNPrw8WBoP/6E2PrFw3dUbfw2knTFlUmKdRonisWvlh9R6H8j/i40XrQMc5FyzqPlRYEKK/X+8q7S0B+`,
		),
	).buffer,
);

/** Where the eight numbers lie that a key of more than 240 bytes is mixed into, of two halves each. */
const FIRST = 6;
const LAST = 22;

const medium = (text: DataView, size: number): Uint16Array => {
	begin(size);
	for (let i = 0; i < 128; i += 32) mix(text, secret, i, i + 16, i);
	avalanche(0);
	avalanche(4);
	for (let i = 128; i + 32 <= size; i += 32) mix(text, secret, i, i + 16, i - 125);
	mix(text, secret, size - 16, size - 32, 103);
	return end(size);
};

const accumulate = (text: DataView, at: number, from: number): void => {
	for (let lane = FIRST; lane < LAST; lane += 2) {
		const offset = 4 * (lane - FIRST);
		const low = text.getInt32(at + offset, true);
		const top = text.getInt32(at + offset + 4, true);
		const low2 = low ^ secret.getInt32(from + offset, true);
		const top2 = top ^ secret.getInt32(from + offset + 4, true);
		add(((lane - FIRST) ^ 2) + FIRST, low, top);
		add(lane, Math.imul(low2, top2), upper(low2, top2));
	}
};

const merge = (lane: number, from: number): void => {
	for (let at = FIRST; at < LAST; at += 4) {
		const word = (i: number): number => lanes[at + i]! ^ secret.getInt32(from + 4 * (at - FIRST + i), true);
		addFolded(lane, word(0), word(1), word(2), word(3));
	}
	avalanche(lane);
};

const long = (text: DataView, size: number): Uint16Array => {
	begin(size);
	lanes.set(
		[
			0xc2b2ae3d, 0, 0x85ebca87, 0x9e3779b1, 0x27d4eb4f, 0xc2b2ae3d, 0x9e3779f9, 0x165667b1, 0xc2b2ae63, 0x85ebca77,
			0x85ebca77, 0, 0x165667c5, 0x27d4eb2f, 0x9e3779b1, 0,
		],
		FIRST,
	);
	for (let at = 0; at + 64 < size; at += 64) {
		const turn = (at >> 6) & 15;
		accumulate(text, at, turn * 8);
		for (let lane = FIRST; turn === 15 && lane < LAST; lane += 2) {
			lanes[lane]! ^= (lanes[lane + 1]! >>> 15) ^ secret.getInt32(128 + 4 * (lane - FIRST), true);
			lanes[lane + 1]! ^= secret.getInt32(132 + 4 * (lane - FIRST), true);
			multiply(lane, 0x9e3779b1, 0);
		}
	}
	accumulate(text, size - 64, 121);
	merge(0, 11);
	lanes[2] = size;
	multiply(2, 0x27d4eb4f, 0xc2b2ae3d);
	lanes[2] = ~lanes[2];
	lanes[3] = ~lanes[3]!;
	merge(2, 117);
	return digest;
};

/** The digest of a resource of more than 112 characters, as `xxh128` gives it. */
export const longDigest = (resource: string): Uint16Array => {
	const key = bytes(SALT + resource);
	return (key.length > 240 ? long : medium)(new DataView(key.buffer), key.length);
};
