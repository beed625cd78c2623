/**
 * Time of the server, at most, as a client with an unreliable clock knows it.
 *
 * An answer that was asked for at a moment and says a time proves that the server's clock showed no more than that time before it
 * was answered; since then no more has gone by than since it was asked for. Wall clock and monotonic clock may each stand still or
 * jump (sleep, a corrected clock): what has gone further counts, from each look to the next, so that what one clock missed and what
 * is taken back from the other do not cancel. What is known is never taken back, so an old answer that is played again does not
 * make the server younger.
 */

/** A moment by both clocks of this machine, in ms. */
export interface Moment {
	wall: number;
	monotonic: number;
}

export const moment = (): Moment => ({ wall: Date.now(), monotonic: performance.now() });

/** Looks closer together than this are counted from the same one: clocks are rounded, and each look would add to the error. */
const STEP = 1000;

export class ServerTime {
	#time = 0;
	#at: Moment = { wall: 0, monotonic: 0 };

	/** Whether any answer has told it. */
	get known(): boolean {
		return this.#time > 0;
	}

	/** The latest that the server's clock can show now; 0 while nothing is known. */
	now(): number {
		if (!this.#time) return 0;
		const at = moment();
		const now = this.#time + Math.max(0, at.wall - this.#at.wall, at.monotonic - this.#at.monotonic);
		if (now >= this.#time + STEP) {
			this.#time = now;
			this.#at = at;
		}
		return now;
	}

	/** Learn from an answer: it was asked for at `asked`, and the server's clock showed `time` at most when it was sent. */
	learn(time: number, asked: Moment): void {
		const known = this.now();
		const before = [this.#time, this.#at] as const;
		this.replace(time, asked);
		if (this.now() < known) [this.#time, this.#at] = before;
	}

	/** Learn from an answer that was surely made after `asked`: what was known before may have been too late. */
	replace(time: number, asked: Moment): void {
		this.#time = time;
		this.#at = asked;
	}
}
