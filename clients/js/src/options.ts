/** Options of a client, and its counters. */

/** The freshness that an answer has to have. */
export interface Level {
	/** Seconds that an answer may lag behind the database; 0: it is always asked for. Default: what the server recommends, or 60. */
	delta?: number;
	/** Whether what was written through this client, in any tab, is seen by its next reads. Default true. */
	readYourWrites?: boolean;
	/** Whether an answer is never older than the one before it, of the same URL. Default true. */
	monotonicReads?: boolean;
	/** Whether all answers are as new as the newest that this client was given. Default false. */
	causal?: boolean;
}

export interface Options extends Level {
	/** Where the Cache Sketch of everything is served, on the page's origin. Default `/quaestor/sketch`. */
	sketch?: string;
	/** Whether a URL of the page's origin is asked for this way. Default: all are. */
	handles?: (url: URL) => boolean;
	/** Bytes of answers kept in memory. Default 10,000,000. */
	memory?: number;
	/** Milliseconds that the first answers wait for the first sketch, which is asked for beside them, before they are revalidated. Default 200. */
	wait?: number;
	/** What sends requests. Default: the global `fetch`. */
	fetch?: typeof fetch;
}

export interface Init extends RequestInit {
	/** The freshness of this one answer; "strong": from the server, past every copy. */
	level?: Level | "strong";
}

/** Counters of the client's work since it was made. */
export interface Counts {
	/** Answers from the page's memory. */
	memory: number;
	/** Answers from the browser's cache or, where that had none, from the network. */
	cache: number;
	/** Answers that were asked of the server because a copy might be stale, or no sketch was there to tell. */
	revalidated: number;
	/** Requests that the client let pass. */
	passed: number;
	/** Sketches loaded. */
	sketches: number;
	/** Sketches that could not be relied on. */
	refused: number;
}
