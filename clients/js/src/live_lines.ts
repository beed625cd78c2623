/** Lines to the endpoint: they carry whole messages. The plain one is a WebSocket of the page's own. */

import type { Message } from "./live_streams.ts";

/** A line. A new line is connecting; after `onclose` a line is of no use any more. */
export interface Line {
	/** Messages can be sent. */
	onopen: () => void;
	onmessage: (message: Message) => void;
	/** The subscriptions of the line are gone. The line connects again by itself, then calls `onopen`. */
	onlost: () => void;
	/** The line broke off. */
	onclose: () => void;
	send(message: object): void;
	/** End the line; none of its functions is called any more. `silent`: because the server is not heard. */
	close(silent?: boolean): void;
}

/** Common part of all lines. */
export abstract class OpenLine implements Line {
	onopen = (): void => {};
	onmessage = (_message: Message): void => {};
	onlost = (): void => {};
	onclose = (): void => {};
	abstract send(message: object): void;
	abstract close(silent?: boolean): void;
}

/** A WebSocket. */
export class SocketLine extends OpenLine {
	#socket: WebSocket;

	constructor(url: string) {
		super();
		const socket = new WebSocket(url, ["quaestor.v1"]);
		this.#socket = socket;
		socket.onopen = () => this.onopen();
		socket.onmessage = ({ data }) => this.onmessage(JSON.parse(data as string) as Message);
		socket.onclose = () => this.onclose();
	}

	send(message: object): void {
		if (this.#socket.readyState === 1) this.#socket.send(JSON.stringify(message));
	}

	close(): void {
		const socket = this.#socket;
		socket.onopen = socket.onmessage = socket.onclose = null;
		socket.close();
	}
}
