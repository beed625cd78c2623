/** Options of a connection to live queries. */

export interface LiveOptions {
	/** Credentials, or a function that gives the present ones before each connection. */
	readonly token?: string | (() => string | Promise<string>);
	/** ms between two signs of life. */
	readonly ping?: number;
	/** Longest pause before a new connection, in ms. */
	readonly longestPause?: number;
	/**
	 * Whether tabs of this origin with the same token share a socket. A text separates them further, as the user's name does.
	 * Without `token` tabs share only if this option is given: a page cannot compare credentials in cookies.
	 */
	readonly share?: boolean | string;
}
