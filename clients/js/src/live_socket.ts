/** The connection of any number of streams: opened again whenever it breaks off, also by sleep or a lost network. */

import { Cuts } from "./live_cuts.ts";
import { type Line, SocketLine } from "./live_lines.ts";
import type { LiveOptions } from "./live_options.ts";
import { AGAIN, pauseAfter, TOO_MANY } from "./live_pauses.ts";
import type { Carrier, LiveStream, Message } from "./live_streams.ts";
import { canShare, lineName, SharedLine } from "./live_tabs.ts";

/** A server that is not heard within this time after a sleep is given up, in ms. */
const AWAKE_MS = 5_000;
/** Browsers let hidden pages act once a minute, at least. */
const HIDDEN_MS = 60_000;
const LOST_PINGS = 3;

export class Socket implements Carrier {
	#token: LiveOptions["token"];
	#url: string;
	#options: LiveOptions;
	#share: boolean | string;
	#streams = new Map<string, LiveStream<unknown>>();
	/** The present connection, also one in the making. */
	#attempt: object | undefined;
	#line: Line | undefined;
	#ready = false;
	/** The page is frozen, or in the cache of pages for the way back. */
	#resting = false;
	#failures = 0;
	/** When the last ping was due. */
	#pinged = 0;
	/** Messages of the server. */
	#heard = 0;
	/** Pings since the last of them. */
	#unanswered = 0;
	#pinging: ReturnType<typeof setInterval> | undefined;
	#probing: ReturnType<typeof setTimeout> | undefined;
	#retrying: ReturnType<typeof setTimeout> | undefined;
	/** Timers of the streams that the server could not serve, by their ids. */
	#waiting = new Map<string, ReturnType<typeof setTimeout>>();
	#cut = false;
	#cuts = new Cuts();
	/** Id of the ping whose answer comes behind the last message without cuts. */
	#mark: string | undefined;

	constructor(url: string, options: LiveOptions) {
		this.#url = url;
		this.#options = options;
		this.#token = options.token;
		this.#share = canShare() && (options.share ?? options.token !== undefined);
		this.#listen((target, name, listener) => target.addEventListener(name, listener));
	}

	open(stream: LiveStream<unknown>): void {
		this.#streams.set(stream.id, stream);
		if (this.#ready) this.#ask(stream);
		else if (!this.#attempt && !this.#retrying) void this.#connect();
	}

	close(stream: LiveStream<unknown>): void {
		clearTimeout(this.#waiting.get(stream.id));
		if (this.#forget(stream)) this.#send({ type: "unsubscribe", id: stream.id });
		if (!this.#streams.size) this.#leave();
	}

	renew(stream: LiveStream<unknown>): void {
		this.#send({ type: "unsubscribe", id: stream.id });
		this.#ask(stream);
	}

	end(): void {
		const streams = [...this.#streams.values()];
		this.#streams.clear();
		this.#cuts = new Cuts();
		for (const stream of streams) stream.lost(true);
		this.#leave();
		this.#listen((target, name, listener) => target.removeEventListener(name, listener));
	}

	cut(on: boolean): void {
		if (on === this.#cut) return;
		this.#cut = on;
		if (!on) this.#cuts.turn(false);
		this.#change({ type: "cut", on });
		// Until the server reads `cut`, it sends messages that no cut follows.
		if (on) this.#send({ type: "ping", id: (this.#mark = crypto.randomUUID()) });
	}

	renewToken(token: string): void {
		this.#token = token;
		this.#change({ type: "token", token });
	}

	#ask(stream: LiveStream<unknown>): void {
		this.#cuts.ask(stream);
		this.#send(stream.request);
	}

	/** Returns whether the stream was there. */
	#forget(stream: LiveStream<unknown>): boolean {
		const known = this.#streams.delete(stream.id);
		this.#cuts.leave(stream);
		return known;
	}

	#send(message: object): void {
		if (this.#ready) this.#line?.send(message);
	}

	/** Change the socket as a whole. On a shared line that would concern other tabs: this one moves to another line. */
	#change(message: object): void {
		if (!this.#share) this.#send(message);
		else if (this.#attempt) this.#move();
	}

	#move(): void {
		this.#leave();
		void this.#connect();
	}

	#alone(): void {
		this.#share = false;
		this.#move();
	}

	async #connect(): Promise<void> {
		this.#retrying = undefined;
		if (!this.#streams.size || this.#resting) return;
		const attempt = (this.#attempt = {});
		let token: string | undefined;
		let name = "";
		try {
			token = typeof this.#token === "function" ? await this.#token() : this.#token;
			if (this.#share) name = await lineName(this.#url, this.#share, this.#cut, token);
		} catch {
			if (this.#attempt === attempt) this.#broke();
			return;
		}
		if (this.#attempt !== attempt) return;
		const connect = () => new SocketLine(this.#url);
		const line = name ? new SharedLine(name, connect) : connect();
		this.#line = line;
		if (line instanceof SharedLine) line.onrefused = () => this.#alone();
		line.onopen = () => {
			this.#ready = true;
			this.#pinged = Date.now();
			this.#unanswered = 0;
			if (token !== undefined) this.#send({ type: "token", token });
			if (this.#cut) this.#send({ type: "cut", on: true });
			this.#mark = undefined;
			this.#cuts.reopen(this.#cut);
			for (const stream of this.#streams.values()) this.#ask(stream);
			this.#pinging = setInterval(this.#ping, this.#every);
		};
		line.onmessage = (message) => this.#take(message);
		line.onlost = () => this.#lost();
		line.onclose = () => this.#broke();
	}

	#take(message: Message): void {
		this.#failures = this.#unanswered = 0;
		this.#heard++;
		if (message.type === "cut") return this.#cuts.cut();
		if (message.type === "pong" && this.#cut && message.id && message.id === this.#mark) return this.#cuts.turn(true);
		const stream = this.#streams.get(message.id ?? "");
		if (!stream) return;
		if (message.type === "error") {
			const status = message.error?.status;
			// All tabs together may have too many subscriptions for one socket.
			if (status !== TOO_MANY) {
				if (AGAIN.has(status) && stream.again()) return this.#later(stream);
			} else if (this.#share) return this.#alone();
			this.#forget(stream);
			return stream.take(message);
		}
		stream.refusals = 0;
		this.#cuts.take(stream, message);
	}

	/** Subscribe again after a while. */
	#later(stream: LiveStream<unknown>): void {
		this.#cuts.ask(stream);
		const pause = pauseAfter(++stream.refusals, this.#options.longestPause);
		this.#waiting.set(stream.id, setTimeout(() => this.renew(stream), pause));
	}

	/** The subscriptions are gone; streams that may go on wait for the next ones. */
	#lost(): void {
		this.#hush();
		for (const stream of [...this.#streams.values()]) if (!stream.lost()) this.#forget(stream);
	}

	#broke(): void {
		this.#attempt = this.#line = undefined;
		this.#lost();
		if (!this.#streams.size || this.#resting) return;
		this.#retrying = setTimeout(() => this.#connect(), pauseAfter(++this.#failures, this.#options.longestPause));
	}

	/** Leave the line. The streams stay. */
	#leave(silent = false): void {
		clearTimeout(this.#retrying);
		this.#hush();
		this.#line?.close(silent);
		this.#retrying = this.#line = this.#attempt = undefined;
	}

	/** Send nothing more: the next line begins with all streams. */
	#hush(): void {
		this.#ready = false;
		clearInterval(this.#pinging);
		for (const timer of [this.#probing, ...this.#waiting.values()]) clearTimeout(timer);
		this.#waiting.clear();
	}

	get #every(): number {
		return this.#options.ping ?? 10_000;
	}

	#ping = (): void => {
		const now = Date.now();
		const slept = now - this.#pinged > LOST_PINGS * this.#every;
		this.#pinged = now;
		if (slept) this.#probe();
		else if (this.#unanswered >= LOST_PINGS) this.#silent();
		else this.#live();
	};

	#live(): void {
		this.#unanswered++;
		this.#send({ type: "ping", ...(typeof document !== "undefined" && document.hidden && { within: HIDDEN_MS }) });
	}

	/** Ask for a sign of life soon. */
	#probe(): void {
		const before = this.#heard;
		this.#live();
		clearTimeout(this.#probing);
		this.#probing = setTimeout(() => this.#heard === before && this.#silent(), Math.min(AWAKE_MS, this.#every));
	}

	#silent(): void {
		this.#leave(true);
		this.#broke();
	}

	/** A computer that slept, a network that is back, or a page that is shown again: a dead line is replaced. */
	#awake = ({ type }: Event): void => {
		if (type === "visibilitychange" && document.hidden) return this.#ready ? this.#live() : undefined;
		this.#resting = false;
		if (this.#ready) this.#probe();
		else if (type === "online" || !this.#attempt) this.#move();
	};

	/** A page that will not run for a while gives the socket away, to another tab if there is one. */
	#rest = (): void => {
		this.#resting = true;
		if (!this.#attempt && !this.#retrying) return;
		this.#leave();
		this.#lost();
	};

	#listen(act: (target: EventTarget, name: string, listener: (event: Event) => void) => void): void {
		if (typeof document === "undefined") return;
		for (const name of ["online", "pageshow"]) act(window, name, this.#awake);
		for (const name of ["visibilitychange", "resume"]) act(document, name, this.#awake);
		act(window, "pagehide", this.#rest);
		act(document, "freeze", this.#rest);
	}
}
