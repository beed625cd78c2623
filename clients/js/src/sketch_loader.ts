/**
 * Loads the Cache Sketch over a way that is not trusted.
 *
 * Caches between may keep a sketch for too long, strip query strings, keep an error, drop fields. The age of a sketch therefore
 * counts from the moment that the server made it, until the latest time that the server's clock may show. If that is too long
 * ago, or no time is shown, it is asked for once more under a URL that no cache has seen; the server repeats the number in it,
 * and an answer that repeats it was made now.
 */

import { digits } from "./fields.ts";
import type { ServerTime } from "./server_time.ts";
import { readSketch, type Sketch } from "./sketch.ts";

const SECOND = 1000;
/** Δ, in seconds, if nobody says it. */
export const RECOMMENDED = 60;
/** `Date` says whole seconds, and clocks of an application's servers may differ by a second. */
const SLACK = 2 * SECOND;
/** A wall clock that differs by more from what the first answer says: one of the two is wrong. */
const AMISS = 10 * SECOND;
/** A server that says nothing for as long will not. */
const PATIENCE = 10 * SECOND;

export interface Found {
	/** Undefined if the server tells clients to keep out of the way. */
	flat: Sketch | undefined;
	/** When the server made it: what was written before is in it. */
	made: number;
	/** Seconds that the operator recommends for Δ; 0: nothing is said. */
	recommended: number;
	/** Whether it was surely made after it was asked for. */
	fresh: boolean;
}

interface Given {
	fetch: typeof fetch;
	delta?: number;
}

interface Answered extends Found {
	/** The latest that the server's clock showed when it answered. */
	time: number;
	/** How long a cache says it has kept it, in ms. */
	age: number;
}

const ask = async (given: Given, url: string, init: RequestInit, nonce?: number): Promise<Answered> => {
	const answer = await given.fetch(url, { ...init, credentials: "omit", signal: AbortSignal.timeout(PATIENCE) });
	const field = answer.headers.get("quaestor-sketch") ?? "";
	const said: Record<string, string> = Object.fromEntries(field.split(/\s*[,;]\s*/).map((part) => part.split("=")));
	const made = digits(said["made"]);
	const flat = "off" in said || !answer.ok ? undefined : readSketch(await answer.arrayBuffer());
	if (!made || !(flat || "off" in said)) throw Error(`no sketch, status ${answer.status}`);
	return {
		flat,
		made,
		recommended: digits(said["delta"]),
		fresh: !!nonce && digits(said["nonce"]) === nonce,
		time: Math.max(made, Date.parse(answer.headers.get("date")!) || 0) + SLACK,
		age: digits(answer.headers.get("age")) * SECOND,
	};
};

/**
 * Load the sketch. Throws if there is none to rely on.
 *
 * @param given what sends requests, and Δ in seconds: by default what the answer recommends. A sketch that was made longer than half of
 *   it ago is asked for again.
 * @param url where it is served.
 * @param time what is known of the server's time; learns from the answer.
 */
export const load = async (given: Given, url: string, time: ServerTime): Promise<Found> => {
	let asked = time.gone();
	const wall = Date.now();
	const cached = await ask(given, url, {}).catch(() => undefined);
	if (cached) {
		// Nothing but the wall clock could tell that the first answer of all is an old one. The later of the two counts.
		const known = time.now();
		const shown = cached.time + cached.age;
		const now = Math.max(shown, known ? 0 : wall);
		const agreed = known || Math.abs(wall - shown) < AMISS;
		const bound = (given.delta ?? cached.recommended) || RECOMMENDED;
		if (agreed && cached.made >= Math.max(now, known) - bound * (SECOND / 2)) {
			time.learn(now, asked);
			return cached;
		}
	}
	const nonce = 1 + Math.floor(Math.random() * 0xffff_ffff);
	asked = time.gone();
	const found = await ask(given, `${url}?nonce=${nonce}`, { cache: "reload" }, nonce);
	if (!found.fresh) throw Error("an old one");
	time.learn(found.time, asked, true);
	return found;
};
