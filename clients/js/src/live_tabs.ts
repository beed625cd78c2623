/**
 * One line for all tabs of an origin. The tab that holds a lock leads: it has the WebSocket, and passes messages on.
 *
 * The browser gives the lock to the next tab when the leader closes or crashes. Each tab keeps its own streams and continues them
 * behind their newest event, as it does after a lost socket. A change of the leader therefore needs no further protocol.
 */

import { type Line, OpenLine } from "./live_lines.ts";
import type { Message } from "./live_streams.ts";

/** From a tab to the leader. Without message: the tab asks for the line. */
interface Up {
	readonly from: string;
	readonly message?: object;
	/** The tab leaves. `silent`: because the server is not heard. */
	readonly leaves?: "closed" | "silent";
}

/** From the leader to a tab. Without message or state: the leader lives, and is still connecting. */
interface Down {
	readonly leader: string;
	readonly state?: "open" | "closed";
	readonly message?: Message;
}

/** After this time without an answer, a tab takes the lock from a leader that does not run. */
const PATIENCE_MS = 5_000;

/** Whether tabs can share here: in pages of secure contexts. */
export const canShare = (): boolean =>
	typeof document !== "undefined" && typeof BroadcastChannel !== "undefined" && !!navigator.locks && !!crypto.subtle;

/** The name of a line: tabs share one only if all parts are equal. Hashed, because parts are secrets. */
export const lineName = async (...parts: unknown[]): Promise<string> => {
	const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(JSON.stringify(parts)));
	return `quaestor-live:${Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
};

/** A tab as its leader sees it: the channel that only this tab reads. */
interface Tab {
	postMessage(down: Down): void;
	close(): void;
}

/** The leader: a line of its own, and the tabs that use it. */
class Leader {
	readonly id: string = crypto.randomUUID();
	#name: string;
	#line: Line;
	#open = false;
	#tabs = new Map<string, Tab>();
	/** Tabs by their subscriptions. */
	#homes = new Map<string, string>();
	/** Messages for the socket as a whole: tabs that share send equal ones. */
	#said = new Set<string>();
	#ending = new AbortController();

	constructor(name: string, line: Line) {
		this.#name = name;
		this.#line = line;
		line.onopen = () => {
			this.#open = true;
			this.#tell({ leader: this.id, state: "open" });
		};
		line.onmessage = (message) => this.#pass(message);
		line.onclose = () => this.#tell({ leader: this.id, state: "closed" });
	}

	admit(id: string, tab: Tab): void {
		this.#tabs.set(id, tab);
		tab.postMessage(this.#present);
	}

	take({ from, message, leaves }: Up): void {
		if (leaves === "silent") {
			this.#line.close();
			this.#tell({ leader: this.id, state: "closed" });
		} else if (leaves) this.#forget(from);
		else if (message) this.#send(from, message as { type: string; id?: string });
		else if (this.#tabs.has(from)) this.#tabs.get(from)?.postMessage(this.#present);
		else {
			this.admit(from, new BroadcastChannel(`${this.#name}/${from}`));
			// A tab holds this lock as long as it is there.
			const { signal } = this.#ending;
			navigator.locks.request(`${this.#name}/${from}`, { signal }, () => this.#forget(from)).catch(() => {});
		}
	}

	end(): void {
		this.#ending.abort();
		this.#line.close();
		for (const tab of this.#tabs.values()) tab.close();
		this.#tabs.clear();
	}

	get #present(): Down {
		return { leader: this.id, ...(this.#open && { state: "open" }) };
	}

	#tell(down: Down): void {
		// The leader's own tab comes last, because it may end the leader.
		for (const tab of [...this.#tabs.values()].reverse()) tab.postMessage(down);
	}

	#pass(message: Message): void {
		const home = this.#homes.get(message.id ?? "");
		if (home === undefined) return this.#tell({ leader: this.id, message });
		if (message.type === "error") this.#homes.delete(message.id ?? "");
		this.#tabs.get(home)?.postMessage({ leader: this.id, message });
	}

	#send(from: string, message: { type: string; id?: string }): void {
		if (message.id) {
			if (message.type === "unsubscribe") this.#homes.delete(message.id);
			else this.#homes.set(message.id, from);
		} else if (message.type !== "ping") {
			const text = JSON.stringify(message);
			if (this.#said.has(text)) return;
			this.#said.add(text);
		}
		this.#line.send(message);
	}

	#forget(tab: string): void {
		this.#tabs.get(tab)?.close();
		this.#tabs.delete(tab);
		for (const [id, home] of [...this.#homes]) if (home === tab) this.#send(tab, { type: "unsubscribe", id });
	}
}

/** The line of one tab, which leads when its turn comes. */
export class SharedLine extends OpenLine {
	/** The browser gives this page no locks. */
	onrefused = (): void => {};
	readonly #id = crypto.randomUUID();
	#name: string;
	#connect: () => Line;
	#all: BroadcastChannel;
	#own: BroadcastChannel;
	#leader: Leader | undefined;
	/** Id of the leader that is heard. */
	#heard: string | undefined;
	#open = false;
	#closed = false;
	#queued = new AbortController();
	#release: (() => void)[] = [];
	#waiting: ReturnType<typeof setTimeout> | undefined;

	constructor(name: string, connect: () => Line) {
		super();
		this.#name = name;
		this.#connect = connect;
		this.#all = new BroadcastChannel(name);
		this.#all.onmessage = ({ data }) => this.#hear(data as Up | Down);
		this.#own = new BroadcastChannel(`${name}/${this.#id}`);
		this.#own.onmessage = ({ data }) => this.#take(data as Down);
		navigator.locks
			.request(`${name}/${this.#id}`, () => this.#hold(() => this.#join()))
			.catch(() => {
				if (this.#closed) return;
				this.#finish();
				this.onrefused();
			});
	}

	send(message: object): void {
		this.#say({ from: this.#id, message });
	}

	close(silent = false): void {
		if (this.#closed) return;
		this.onopen = this.onmessage = this.onlost = this.onclose = this.onrefused = () => {};
		this.#say({ from: this.#id, leaves: silent ? "silent" : "closed" });
		this.#finish();
	}

	/** Hold a lock until the line ends. */
	#hold(held: () => void): Promise<void> | undefined {
		if (this.#closed) return undefined;
		const holding = new Promise<void>((resolve) => this.#release.push(resolve));
		held();
		return holding;
	}

	#join(): void {
		this.#queued = new AbortController();
		this.#lead({ signal: this.#queued.signal });
		this.#ask();
	}

	#ask(): void {
		this.#waiting = setTimeout(() => {
			this.#queued.abort();
			this.#lead({ steal: true });
		}, PATIENCE_MS);
		this.#say({ from: this.#id });
	}

	#lead(options: LockOptions): void {
		const begin = () => {
			clearTimeout(this.#waiting);
			this.#lost();
			this.#leader = new Leader(this.#name, this.#connect());
			this.#heard = this.#leader.id;
			this.#leader.admit(this.#id, { postMessage: (down) => this.#take(down), close: () => {} });
			this.#all.postMessage({ leader: this.#leader.id } satisfies Down);
		};
		navigator.locks
			.request(this.#name, options, () => this.#hold(begin))
			.catch(() => {
				// Another tab took the lock, because this one did not run.
				if (this.#closed || !this.#leader) return;
				this.#leader.end();
				this.#leader = this.#heard = undefined;
				this.#lost();
				this.#join();
			});
	}

	#say(up: Up): void {
		if (this.#leader) this.#leader.take(up);
		else this.#all.postMessage(up);
	}

	/** A message to all tabs. */
	#hear(message: Up | Down): void {
		if ("from" in message) this.#leader?.take(message);
		else if (!this.#leader && message.leader !== this.#heard) {
			clearTimeout(this.#waiting);
			this.#lost();
			this.#heard = message.leader;
			this.#ask();
		}
	}

	#take({ leader, state, message }: Down): void {
		this.#heard ??= leader;
		if (this.#closed || leader !== this.#heard) return;
		clearTimeout(this.#waiting);
		if (state === "closed") {
			this.#finish();
			this.onclose();
		} else if (state === "open" && !this.#open) {
			this.#open = true;
			this.onopen();
		} else if (message) this.onmessage(message);
	}

	#lost(): void {
		if (!this.#open) return;
		this.#open = false;
		this.onlost();
	}

	#finish(): void {
		this.#closed = true;
		clearTimeout(this.#waiting);
		this.#queued.abort();
		this.#leader?.end();
		this.#all.close();
		this.#own.close();
		for (const release of this.#release) release();
	}
}
