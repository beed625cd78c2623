/** The target of this bundle, set by the build: pages need not load code that only workers use. An unbundled client is for both. */

declare const BUNDLE: "page" | "worker" | undefined;
const bundle = typeof BUNDLE === "undefined" ? undefined : BUNDLE;

/** Whether a service worker may read through it. */
export const within = bundle !== "page";
/** Whether modules can be loaded when they are needed: a worker cannot. */
export const loads = bundle !== "worker";
/** Whether nobody bundled it: it may run outside of a browser, and be watched. */
export const unbundled = bundle === undefined;
