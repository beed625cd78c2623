/** A worker that does nothing, served in place of the other one to be rid of it: it takes over, forgets what was kept, and is gone. */

const worker = self as unknown as {
	addEventListener(name: string, listener: (event: Event & { waitUntil(work: Promise<unknown>): void }) => void): void;
	skipWaiting(): Promise<void>;
	registration: ServiceWorkerRegistration;
};

worker.addEventListener("install", () => void worker.skipWaiting());
worker.addEventListener("activate", (event) => {
	const leave = async (): Promise<void> => {
		for (const name of await caches.keys()) if (/^quaestor-\d/.test(name)) await caches.delete(name);
		await worker.registration.unregister();
	};
	event.waitUntil(leave());
});
