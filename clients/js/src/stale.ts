/** Notifies a page when an answer that it has read has become stale, so that a library that keeps answers itself asks again. */

import type { Client } from "./client.ts";
import type { Lifetime } from "./fields.ts";
import { resource } from "./resource.ts";

/** URLs that are followed at most; those read longest ago are forgotten first. */
const FOLLOWED = 1000;
/** Sketches are looked at so often in Δ. */
const LOOKS = 4;

/**
 * Call `listener` when an answer that this page has read, and that has a lifetime, has become stale. A sketch names it, its
 * lifetime is over, or a write went through the client in any tab. `url` is its path and query.
 *
 * Each reading is reported once. While the page is seen and has read something, sketches are loaded for it, twice in Δ. The `Client` has
 * to be that of `quaestor-client`. Returns what ends it.
 */
export const onStale = (client: Client, listener: (url: string) => void): (() => void) => {
	if (!client.watch) throw TypeError("onStale needs a Client of quaestor-client: bundled ones (quaestor-client/min, client.js) cannot be watched");
	const followed = new Map<string, Lifetime>();
	let timer: ReturnType<typeof setTimeout> | undefined;
	let ended = false;

	const tell = (stale: (life: Lifetime, name: string) => boolean): void => {
		const urls = [...followed].filter(([url, life]) => {
			const [path = "", query = ""] = url.split(/\?(.*)/s);
			return stale(life, resource(path, query));
		});
		for (const [url] of urls) followed.delete(url);
		for (const [url] of urls) if (!ended) listener(url);
	};

	/** Whether the present knowledge shows that a reading is stale. */
	const known = ({ partition, shows, until }: Lifetime, name: string): boolean => {
		const newer = [partition, ""].map(watched.known.held).find(({ made }) => made >= shows);
		return until <= watched.known.time.now() || !!newer?.flat?.names(name);
	};

	const look = (): void => {
		if (ended || watched.known.off || (globalThis.document?.visibilityState ?? "visible") !== "visible") return;
		tell(known);
		for (const partition of new Set([...followed.values()].map((life) => life.partition))) watched.want(partition);
	};

	const next = (): void => {
		timer = undefined;
		look();
		wait();
	};

	const wait = (): void => {
		if (timer !== undefined || ended || !followed.size) return;
		timer = setTimeout(next, watched.bound() / LOOKS);
		(timer as { unref?: () => void }).unref?.();
	};

	const watched = client.watch({
		read({ pathname, search }, life, outdated) {
			const url = pathname + search;
			followed.delete(url);
			followed.set(url, life);
			if (followed.size > FOLLOWED) followed.delete(followed.keys().next().value!);
			if (outdated) tell((_, name) => name === resource(pathname, search.slice(1)));
			wait();
		},
		loaded: () => tell(known),
		heard(said) {
			if (said !== "off") tell(({ personal }) => personal || said === "wrote");
		},
	});
	const seen = globalThis.document;
	seen?.addEventListener("visibilitychange", look);
	return () => {
		ended = true;
		clearTimeout(timer);
		seen?.removeEventListener("visibilitychange", look);
		watched.leave();
	};
};
