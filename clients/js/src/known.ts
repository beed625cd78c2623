/** What a client knows of the server. Times are the server's, in ms since the epoch. */

import { ServerTime } from "./server_time.ts";
import type { Sketch } from "./sketch.ts";

export class Known {
	readonly time = new ServerTime();
	/** The newest sketch, and when the server made it. */
	sketch: Sketch | undefined;
	made = 0;
	/** Seconds that the server recommends for Δ; 0: it said nothing. */
	delta = 0;
	/** Sketches made before do not know of what was written, or, for causal reads, of what was read. */
	written = 0;
	read = 0;
	/** When the present user's session began, as far as this client knows. */
	session = 0;
	/** Answers sent until then count by another time, because the server's clock was set back. */
	again = 0;
	/** Whether clients are told to leave everything to the network. */
	off = false;
}
