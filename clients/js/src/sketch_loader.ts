/**
 * The newest Cache Sketch that was loaded, and whether it may be relied on.
 *
 * The way to it is not trusted: caches between may keep it for too long, strip query strings, keep an error, drop fields. So it counts
 * from the moment that the server made it (`Quaestor-Sketch: made=...`), against the time that the same answer shows. If that is
 * too long ago, or no time is shown, it is asked for once more under a URL that no cache has seen, and the server repeats the
 * number in it: an answer that repeats it was made now.
 */

import { type Moment, moment, type ServerTime } from "./server_time.ts";
import { Sketch } from "./sketch.ts";

const SECOND = 1000;
/** Clocks of an application's servers may differ by this much. */
const SKEW = SECOND;
/** A wall clock that differs by more from what the first answer says shows that one of the two is wrong. */
const AMISS = 30 * SECOND;

export interface Made {
	sketch: Sketch;
	/** When the server made it: what was written before is in it. */
	made: number;
}

interface Answered extends Made {
	/** What the server's clock showed at most when it answered. */
	time: number;
	/** Whether it was surely made for this very request. */
	fresh: boolean;
	/** Whether clients are told to keep out of the way. */
	off: boolean;
}

const number = (field: string, name: string): number => Number(new RegExp(`(?:^|[,;] ?)${name}=(\\d{1,15})`).exec(field)?.[1] ?? 0);

const answered = async (answer: Response, nonce: number): Promise<Answered | undefined> => {
	const field = answer.headers.get("quaestor-sketch") ?? "";
	const sketch = answer.ok ? Sketch.read(await answer.arrayBuffer()) : undefined;
	const made = number(field, "made");
	if (!sketch || !made) return undefined;
	const date = Date.parse(answer.headers.get("date") ?? "");
	const age = Number(answer.headers.get("age") ?? 0);
	return {
		sketch,
		made,
		time: Math.max(made, (date || 0) + SECOND) + (age || 0) * SECOND,
		fresh: nonce > 0 && number(field, "nonce") === nonce,
		off: /(?:^|[,;] ?)off(?:$|[,;])/.test(field),
	};
};

/**
 * Loads the sketch.
 *
 * @param send what sends requests.
 * @param url where it is served.
 * @param time what is known of the server's time; learns from the answer.
 * @param after a sketch made before is too old.
 * @returns the sketch, "off" if clients are switched off, undefined if there is none to rely on.
 */
export const load = async (
	send: typeof fetch,
	url: string,
	time: ServerTime,
	after: (now: number) => number,
): Promise<Made | "off" | undefined> => {
	let asked = moment();
	// Only the wall clock could tell that the first answer of all is an old one.
	const plausible = (found: Answered, at: Moment): boolean =>
		found.made >= after(Math.max(time.now(), found.time)) && (time.known || Math.abs(at.wall - found.time) < AMISS);
	let found = await send(url, { credentials: "omit" }).then((answer) => answered(answer, 0));
	if (!found || !plausible(found, asked)) {
		const nonce = 1 + Math.floor(Math.random() * 0xffff_ffff);
		asked = moment();
		found = await send(`${url}?nonce=${nonce}`, { cache: "reload", credentials: "omit" }).then((answer) =>
			answered(answer, nonce),
		);
		if (!found?.fresh) return undefined;
		time.replace(found.time + SKEW, asked);
	} else {
		time.learn(found.time + SKEW, asked);
	}
	return found.off ? "off" : { sketch: found.sketch, made: found.made };
};
