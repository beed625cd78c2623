/**
 * Digest of a Cache Sketch key: XXH3's 128 bits, seed 0, without WebAssembly and without BigInt.
 *
 * A number of 64 bits is a pair of 32-bit halves. Functions that have two halves to give return the lower one and leave the
 * upper one in `high`: no object is made for a digest.
 *
 * Source: the xxHash specification, `doc/xxhash_spec.md` of the xxHash project, XXH3 128-bit variant.
 */

const SECRET = /* @__PURE__ */ Uint8Array.from(
	atob(
		"uP5sOSOkS758AYEs9yGtHN7UbemDkJfbckCkpLezZx/LeeZOzMDleIJa0H3M/3IhuAhGdPdDJI7gNZDmgTomTDwoUruRwwDLiNBlixtTLqNxZEiXog35TjgZ70ap3qzYqPp2P+OcND/53LvHxwtPHYpR4EvNtFkxyJ9+ydl4c2TqxayDNNPrw8WBoP/6E2PrFw3dUbfw2knTFlUmKdRonisWvlh9R6H8j/i40XrQMc5FyzqPlRYEKK/X+8q7S0B+",
	),
	(character) => character.charCodeAt(0),
);

/** Upper half of the last result. */
let high = 0;

const upper = (a: number, b: number): number => {
	const low = a & 0xffff;
	const top = a >>> 16;
	const middle = top * (b & 0xffff) + ((low * (b & 0xffff)) >>> 16);
	return (Math.imul(top, b >>> 16) + (middle >>> 16) + ((low * (b >>> 16) + (middle & 0xffff)) >>> 16)) >>> 0;
};

/** Lower 64 bits of a product. */
const times = (low: number, top: number, low2: number, top2: number): number => {
	high = (upper(low, low2) + Math.imul(low, top2) + Math.imul(top, low2)) | 0;
	return Math.imul(low, low2);
};

/** Product of 128 bits, its two halves combined by exclusive or. */
const folded = (low: number, top: number, low2: number, top2: number): number => {
	const middle = upper(low, low2) + (Math.imul(low, top2) >>> 0) + (Math.imul(top, low2) >>> 0);
	const rest =
		(Math.imul(top, top2) >>> 0) + upper(low, top2) + upper(top, low2) + Math.floor(middle / 0x1_0000_0000);
	high = middle ^ (upper(top, top2) + Math.floor(rest / 0x1_0000_0000));
	return Math.imul(low, low2) ^ rest;
};

const sum = (low: number, top: number, low2: number, top2: number): number => {
	const result = (low >>> 0) + (low2 >>> 0);
	high = (top + top2 + (result > 0xffff_ffff ? 1 : 0)) | 0;
	return result | 0;
};

const avalanche = (low: number, top: number): number => {
	// h ^= h >>> 37; h *= 0x165667919E3779F9; h ^= h >>> 32
	const product = times(low ^ (top >>> 5), top, 0x9e3779f9, 0x16566791);
	return product ^ high;
};

let text: Uint8Array;

const at = (bytes: Uint8Array, i: number): number =>
	bytes[i]! | (bytes[i + 1]! << 8) | (bytes[i + 2]! << 16) | (bytes[i + 3]! << 24);

const mixed = (i: number, secret: number): number =>
	folded(
		at(text, i) ^ at(SECRET, secret),
		at(text, i + 4) ^ at(SECRET, secret + 4),
		at(text, i + 8) ^ at(SECRET, secret + 8),
		at(text, i + 12) ^ at(SECRET, secret + 12),
	);

/** The two accumulators: low half and high half of each. */
let a = 0;
let aTop = 0;
let b = 0;
let bTop = 0;

const mix = (i: number, j: number, secret: number): void => {
	let low = mixed(i, secret);
	low = sum(a, aTop, low, high);
	let top = high;
	const fromJ = sum(at(text, j), at(text, j + 4), at(text, j + 8), at(text, j + 12));
	a = low ^ fromJ;
	aTop = top ^ high;
	low = mixed(j, secret + 16);
	low = sum(b, bTop, low, high);
	top = high;
	const fromI = sum(at(text, i), at(text, i + 4), at(text, i + 8), at(text, i + 12));
	b = low ^ fromI;
	bTop = top ^ high;
};

const stripes = new Int32Array(16);

const accumulate = (i: number, secret: number): void => {
	for (let lane = 0; lane < 16; lane += 2) {
		const low = at(text, i + lane * 4);
		const top = at(text, i + lane * 4 + 4);
		const low2 = low ^ at(SECRET, secret + lane * 4);
		const top2 = top ^ at(SECRET, secret + lane * 4 + 4);
		const other = lane ^ 2;
		stripes[other] = sum(stripes[other]!, stripes[other + 1]!, low, top);
		stripes[other + 1] = high;
		stripes[lane] = sum(stripes[lane]!, stripes[lane + 1]!, Math.imul(low2, top2), upper(low2, top2));
		stripes[lane + 1] = high;
	}
};

const merged = (secret: number, low: number, top: number): number => {
	for (let lane = 0; lane < 16; lane += 4) {
		const product = folded(
			stripes[lane]! ^ at(SECRET, secret + lane * 4),
			stripes[lane + 1]! ^ at(SECRET, secret + lane * 4 + 4),
			stripes[lane + 2]! ^ at(SECRET, secret + lane * 4 + 8),
			stripes[lane + 3]! ^ at(SECRET, secret + lane * 4 + 12),
		);
		low = sum(low, top, product, high);
		top = high;
	}
	return avalanche(low, top);
};

/** A digest's four 32-bit words, the most significant first. */
export type Digest = Int32Array;

const long = (size: number, digest: Digest): void => {
	stripes.set([
		0xc2b2ae3d, 0, 0x85ebca87, 0x9e3779b1, 0x27d4eb4f, 0xc2b2ae3d, 0x9e3779f9, 0x165667b1, 0xc2b2ae63, 0x85ebca77,
		0x85ebca77, 0, 0x165667c5, 0x27d4eb2f, 0x9e3779b1, 0,
	]);
	for (let i = 0; i + 64 < size; i += 64) {
		const turn = (i >> 6) & 15;
		accumulate(i, turn * 8);
		if (turn === 15) {
			for (let lane = 0; lane < 16; lane += 2) {
				const top = stripes[lane + 1]!;
				stripes[lane] = times(
					stripes[lane]! ^ (top >>> 15) ^ at(SECRET, 128 + lane * 4),
					top ^ at(SECRET, 132 + lane * 4),
					0x9e3779b1,
					0,
				);
				stripes[lane + 1] = high;
			}
		}
	}
	accumulate(size - 64, 121);
	let low = times(size, 0, 0x85ebca87, 0x9e3779b1);
	digest[3] = merged(11, low, high);
	digest[2] = high;
	low = times(size, 0, 0x27d4eb4f, 0xc2b2ae3d);
	digest[1] = merged(117, ~low, ~high);
	digest[0] = high;
};

/**
 * The 128 bits of XXH3 with seed 0.
 *
 * @param bytes what is hashed, of which the first `size`, more than 16, count.
 * @param digest where they go: four words, the most significant first.
 */
export const xxh128 = (bytes: Uint8Array, size: number, digest: Digest): void => {
	text = bytes;
	if (size > 240) return long(size, digest);
	a = times(size, 0, 0x85ebca87, 0x9e3779b1);
	aTop = high;
	b = bTop = 0;
	if (size > 128) {
		for (let i = 0; i < 128; i += 32) mix(i, i + 16, i);
		a = avalanche(a, aTop);
		aTop = high;
		b = avalanche(b, bTop);
		bTop = high;
		for (let i = 128; i + 32 <= size; i += 32) mix(i, i + 16, i - 125);
		mix(size - 16, size - 32, 103);
	} else {
		for (let i = (size - 1) & ~31; i >= 0; i -= 32) mix(i >> 1, size - 16 - (i >> 1), i);
	}
	const low = sum(a, aTop, b, bTop);
	const top = high;
	digest[3] = avalanche(low, top);
	digest[2] = high;
	let x = times(a, aTop, 0x85ebca87, 0x9e3779b1);
	let xTop = high;
	const y = times(b, bTop, 0xc2b2ae63, 0x85ebca77);
	x = sum(x, xTop, y, high);
	xTop = high;
	const z = times(size, 0, 0x27d4eb4f, 0xc2b2ae3d);
	x = sum(x, xTop, z, high);
	xTop = high;
	const last = avalanche(x, xTop);
	x = -last | 0;
	digest[1] = x;
	digest[0] = (-high - (last === 0 ? 0 : 1)) | 0;
};
