/**
 * Time of the server, at most, as a client with an unreliable clock knows it.
 *
 * An answer that was asked for at a moment and says a time proves that the server's clock showed no more than that time before it
 * was answered; since then no more has gone by than since it was asked for. Wall clock and monotonic clock may each stand still or
 * jump (sleep, a corrected clock): what has gone further counts, from each look to the next, so that what one clock missed and what
 * is taken back from the other do not cancel. What is known is never taken back, so an old answer that is played again does not
 * make the server younger.
 */

/** Looks closer together than this are counted from the same one: clocks are rounded, and each look would add to the error. */
const STEP = 1000;

export class ServerTime {
	#gone = 0;
	#wall = Date.now();
	#monotonic = performance.now();
	/** The server's time when nothing had gone by. */
	#start: number | undefined;

	/** Whether any answer has told it. */
	get known(): boolean {
		return this.#start !== undefined;
	}

	/** What has gone by since the first look, at most. */
	gone(): number {
		const wall = Date.now();
		const monotonic = performance.now();
		const gone = this.#gone + Math.max(0, wall - this.#wall, monotonic - this.#monotonic);
		if (gone >= this.#gone + STEP) [this.#gone, this.#wall, this.#monotonic] = [gone, wall, monotonic];
		return gone;
	}

	/** The latest that the server's clock can show now; 0 while nothing is known. */
	now(): number {
		return this.#start === undefined ? 0 : this.#start + this.gone();
	}

	/** Learn from an answer: it was asked for when `asked` had gone by, and the server's clock showed `time` at most when it was sent. */
	learn(time: number, asked: number): void {
		this.#start = Math.max(this.#start ?? 0, time - asked);
	}

	/** Learn from an answer that was surely made after `asked`: what was known before may have been too late. */
	replace(time: number, asked: number): void {
		this.#start = time - asked;
	}
}
