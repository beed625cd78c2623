/**
 * A worker that does nothing, served in place of the other one to remove that one. The worker takes over, deletes the kept
 * answers, and is gone. Imported into a site's own worker, it only deletes.
 */

import { imported } from "./imported.ts";

const worker = self as unknown as {
	addEventListener(name: string, listener: (event: Event & { waitUntil(work: Promise<unknown>): void }) => void): void;
	skipWaiting(): Promise<void>;
	registration: ServiceWorkerRegistration;
};

if (!imported()) worker.addEventListener("install", () => void worker.skipWaiting());
worker.addEventListener("activate", (event) => {
	const leave = async (): Promise<void> => {
		for (const name of await caches.keys()) if (/^quaestor-\d/.test(name)) await caches.delete(name);
		if (!imported()) await worker.registration.unregister();
	};
	event.waitUntil(leave());
});
