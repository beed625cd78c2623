/** A hook for React: what a URL shows, read again when it has become stale. */

import { useEffect, useState } from "react";
import type { Client, Init } from "./client.ts";
import { readJson } from "./fetchers.ts";
import { onStale } from "./stale.ts";

/** The state that a component shows. */
export interface Shown<T> {
	/** The JSON of the newest answer; undefined until there is one. */
	data: T | undefined;
	/** The error of the last reading, an `AnswerError` where the status is not 2xx; `data` is then of the reading before. */
	error: unknown;
	/** Whether nothing has been read yet. */
	loading: boolean;
}

const NOTHING = { data: undefined, error: undefined };

/**
 * The JSON at a path of the page's origin, read through the client and again whenever it has become stale; null: nothing is read.
 *
 * `init` counts when the client or the URL changes.
 */
export const useQuaestor = <T = unknown>(client: Client, url: string | null, init?: Init): Shown<T> => {
	const [shown, show] = useState<{ url: string | null; data: T | undefined; error: unknown }>({ url: null, ...NOTHING });
	useEffect(() => {
		if (url === null) return undefined;
		const { pathname, search } = new URL(url, location.href);
		let reading = new AbortController();
		const read = async (): Promise<void> => {
			reading.abort();
			const { signal } = (reading = new AbortController());
			try {
				const data = await readJson<T>(client, url, { ...init, signal });
				if (!signal.aborted) show({ url, data, error: undefined });
			} catch (error) {
				if (!signal.aborted) show((before) => ({ url, data: before.url === url ? before.data : undefined, error }));
			}
		};
		const leave = onStale(client, (stale) => {
			if (stale === pathname + search) void read();
		});
		void read();
		return () => {
			leave();
			reading.abort();
		};
	}, [client, url]);
	const { data, error } = shown.url === url ? shown : NOTHING;
	return { data, error, loading: url !== null && shown.url !== url };
};
