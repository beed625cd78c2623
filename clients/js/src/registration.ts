/** Registers the service worker, after the page has been painted. */

export interface Registering {
	/** Pages below this path read through the worker. Default `/`. */
	scope?: string;
	/** Told when a newer worker waits for the pages of the old one to be closed, with what has it take over at once. */
	waiting?: (activate: () => void) => void;
}

/** Register the worker at a URL, whose query says what it handles. Resolves to undefined where there are no workers. */
export const register = async (
	url: string,
	{ scope = "/", waiting }: Registering = {},
): Promise<ServiceWorkerRegistration | undefined> => {
	if (document.readyState !== "complete") await new Promise((done) => addEventListener("load", done, { once: true }));
	try {
		const registration = await navigator.serviceWorker?.register(url, { scope, updateViaCache: "none" });
		const tell = (): void => {
			const worker = registration?.waiting;
			if (worker && navigator.serviceWorker.controller) waiting?.(() => worker.postMessage("skip waiting"));
		};
		tell();
		registration?.addEventListener("updatefound", () => registration.installing?.addEventListener("statechange", tell));
		return registration;
	} catch (error) {
		console.warn(`quaestor: ${url}: ${error}: pages read without it`);
		return undefined;
	}
};
