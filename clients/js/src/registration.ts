/** Registers the service worker, after the page has been painted, where no other worker has its place. */

export interface Registering {
	/** Pages below this path read through the worker. Default `/`. */
	scope?: string;
	/** Called when a newer worker waits for the pages of the old one to be closed. The argument makes it take over at once. */
	waiting?: (activate: () => void) => void;
	/** Whether another worker that has these pages loses them. Default false: it stays, and a page receives an event. */
	replace?: boolean;
}

/** The `detail` of the event `quaestor-refused` of a page's window. */
export interface Refused {
	/** The URL of the worker that stays. */
	worker: string;
	/** The pages that it has. */
	scope: string;
	/** The statement to put into that worker. */
	remedy: string;
}

const place = (url: string): string => new URL(url, location.href).href.replace(/[?#].*/, "");

/** Another worker than the one at a URL, of a registration. */
const foreign = (url: string, registration: ServiceWorkerRegistration | undefined): ServiceWorker | undefined =>
	[registration?.active, registration?.waiting, registration?.installing].find(
		(worker) => worker && place(worker.scriptURL) !== place(url),
	) ?? undefined;

const refuse = (url: string, { scriptURL }: ServiceWorker, scope: string): void => {
	const { pathname, search } = new URL(url, location.href);
	const rules = JSON.stringify(search.slice(1));
	const remedy = `self.quaestor = ${rules}; importScripts("${pathname}");`;
	const detail: Refused = { worker: scriptURL, scope, remedy };
	console.warn(`quaestor: ${scriptURL} is the service worker of ${scope} and stays; begin it with: ${remedy}`);
	dispatchEvent(new CustomEvent("quaestor-refused", { detail }));
};

/**
 * Register the worker at a URL, whose query names the handled paths.
 *
 * Resolves to undefined where there are no workers, and where the site has its own worker for these pages. That worker stays,
 * and the window gets the event `quaestor-refused`.
 */
export const register = async (
	url: string,
	{ scope = "/", waiting, replace }: Registering = {},
): Promise<ServiceWorkerRegistration | undefined> => {
	if (document.readyState !== "complete") await new Promise((done) => addEventListener("load", done, { once: true }));
	const workers = navigator.serviceWorker;
	try {
		const before = replace ? undefined : await workers?.getRegistration(scope);
		const other = foreign(url, before);
		if (other) {
			refuse(url, other, before!.scope);
			return undefined;
		}
		const registration = await workers?.register(url, { scope, updateViaCache: "none" });
		// The site's script was registering its own meanwhile: it gets its place back.
		const overtaken = replace ? undefined : foreign(url, registration);
		if (overtaken) {
			await workers.register(overtaken.scriptURL, { scope });
			refuse(url, overtaken, registration.scope);
			return undefined;
		}
		const tell = (): void => {
			const worker = registration?.waiting;
			if (worker && workers.controller) waiting?.(() => worker.postMessage("skip waiting"));
		};
		tell();
		registration?.addEventListener("updatefound", () => registration.installing?.addEventListener("statechange", tell));
		return registration;
	} catch (error) {
		console.warn(`quaestor: ${url}: ${error}: pages read without it`);
		return undefined;
	}
};
