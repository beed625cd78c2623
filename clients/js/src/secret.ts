/** Bytes that the digests of Cache Sketch keys are made with. */

/** The bytes of a text whose characters are bytes. */
export const bytes = (text: string): Uint8Array<ArrayBuffer> => Uint8Array.from(text, (one) => one.charCodeAt(0));

/** Before each key: the xxh128 of four zero bytes, which is pybloom_live's salt. */
export const SALT = atob("KjOBbtfgw3Pb5WPHNyILZQ==");

/** The first 129 of the 192 bytes of XXH3's secret: keys of at most 128 bytes need no more. */
export const SECRET =
	"uP5sOSOkS758AYEs9yGtHN7UbemDkJfbckCkpLezZx/LeeZOzMDleIJa0H3M/3IhuAhGdPdDJI7gNZDmgTomTDwoUruRwwDLiNBlixtTLqNxZEiXog35TjgZ70ap3qzYqPp2P+OcND/53LvHxwtPHYpR4EvNtFkxyJ9+ydl4c2Tq";
