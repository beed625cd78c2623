/** The service worker's rules, and whether a site's own worker took the script in by `importScripts`. */

/** A site sets `self.quaestor` to the rules before it imports the script. Settings of the whole worker are then the site's. */
export const imported = (): boolean => given() !== undefined || !location.pathname.endsWith("/worker.js");

/** The rules: those of the site that imports the script, or the query of the script's own URL. */
export const ruled = (): URLSearchParams => new URLSearchParams(given() ?? (imported() ? "" : location.search));

const given = (): string | undefined => (self as unknown as { quaestor?: string }).quaestor;
