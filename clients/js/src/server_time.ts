/**
 * Time of the server, at most, as a client with an unreliable clock knows it.
 *
 * An answer carries a time. The answer proves that the server's clock showed at most that time when it answered. Since then at
 * most the time since the request has gone by. Wall clock and monotonic clock may each stand still or jump (sleep, a corrected
 * clock). From each look to the next, the clock that went further counts. A pause of one clock and a correction of the other
 * therefore do not cancel. Knowledge is never taken back: an old answer that is played again does not make the server younger.
 */

/** Looks closer together than this are counted from the same one: clocks are rounded, and each look would add to the error. */
const STEP = 1000;

export interface ServerTime {
	/** The time since the first look, at most. */
	gone(): number;
	/** The latest that the server's clock can show now; 0 while nothing is known. */
	now(): number;
	/**
	 * Learn from an answer: it was asked for when `asked` had gone by, and the server's clock showed `time` at most when it was sent.
	 * If it was surely made after `asked`, what was known before may have been too late.
	 */
	learn(time: number, asked: number, surely?: boolean): void;
}

/** Nothing known yet, and nothing gone by. */
export const serverTime = (): ServerTime => {
	let counted = 0;
	let wallThen = Date.now();
	let monotonicThen = performance.now();
	/** The server's time when nothing had gone by; 0: no answer has shown it. */
	let start = 0;

	const gone = (): number => {
		const wall = Date.now();
		const monotonic = performance.now();
		const further = Math.max(0, wall - wallThen, monotonic - monotonicThen);
		if (further < STEP) return counted + further;
		[wallThen, monotonicThen] = [wall, monotonic];
		return (counted += further);
	};

	return {
		gone,
		now: () => start && start + gone(),
		learn: (time, asked, surely) => {
			start = Math.max(surely ? 0 : start, time - asked);
		},
	};
};
