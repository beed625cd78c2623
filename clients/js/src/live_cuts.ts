/** Cuts of one socket: its streams take messages as they come, and show them together when the server announces a cut. */

import type { LiveStream, Message } from "./live_streams.ts";

type Stream = LiveStream<unknown>;

export class Cuts {
	#on = false;
	/** Streams that took messages since they last showed. */
	#changed = new Set<Stream>();
	/** Streams that received a result. */
	#begun = new Set<Stream>();
	/** Streams that wait for a new result, and show an older cut until then. */
	#behind = new Set<Stream>();
	/** No message came since the newest cut. */
	#whole = false;

	/** Show everything. From now on show at cuts only (`on`), or at once. */
	turn(on: boolean): void {
		this.#on = false;
		this.#show();
		this.#on = this.#whole = on;
	}

	/** A new line begins, with cuts or without. Streams keep what they did not show. */
	reopen(on: boolean): void {
		this.#on = on;
		this.#whole = false;
	}

	/** The stream asks for its result or its events. */
	ask(stream: Stream): void {
		if (this.#begun.has(stream)) this.#behind.add(stream);
	}

	take(stream: Stream, message: Message): void {
		if (message.type === "refreshed") this.ask(stream);
		else if (message.type === "result" || message.type === "resumed") {
			this.#begun.add(stream);
			this.#behind.delete(stream);
		}
		stream.take(message, this.#on);
		if (!this.#on) return;
		this.#whole = false;
		this.#changed.add(stream);
	}

	/** The server announces: the messages so far belong together. */
	cut(): void {
		this.#whole = true;
		this.#show();
	}

	/** The stream has ended, and holds the others up no more. */
	leave(stream: Stream): void {
		for (const streams of [this.#changed, this.#begun, this.#behind]) streams.delete(stream);
		this.#show();
	}

	#show(): void {
		if (this.#on && (this.#behind.size || !this.#whole)) return;
		const changed = [...this.#changed];
		this.#changed.clear();
		// All results are there before the first reader looks at them.
		for (const stream of changed) stream.settle();
		for (const stream of changed) {
			try {
				stream.show();
			} catch (error) {
				// The readers of the other streams do not miss the cut.
				queueMicrotask(() => {
					throw error;
				});
			}
		}
	}
}
