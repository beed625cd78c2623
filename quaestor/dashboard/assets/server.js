// Calls of the server, relative to wherever this page is, each with the token.

const PLACE = "quaestor-dashboard-token";
const LOOK_MS = 10_000;
// The server predicts a canary within 180 s.
const CHANGE_MS = 200_000;
let token = sessionStorage.getItem(PLACE);

export class Problem extends Error {
	constructor(status, detail) {
		super(detail);
		this.status = status;
	}
}

export const known = () => token !== null;

export function remember(text) {
	token = text;
	sessionStorage.setItem(PLACE, text);
}

export function forget() {
	token = null;
	sessionStorage.removeItem(PLACE);
}

/** The answer to a call. signal: aborts it. Throws a Problem with the server's sentence. */
async function answered(path, body, signal) {
	const headers = { authorization: `Bearer ${token}`, ...(body ? { "content-type": "application/json" } : {}) };
	const options = body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers };
	let answer;
	try {
		answer = await fetch(path, { ...options, cache: "no-store", credentials: "same-origin", signal });
	} catch {
		throw new Problem(0, "The server does not answer.");
	}
	if (answer.ok) return answer;
	const problem = await answer.json().catch(() => ({}));
	throw new Problem(answer.status, problem.detail ?? `The server answered ${answer.status}.`);
}

/** The result of a call. A server that hangs is given up. Throws a Problem. */
export async function call(path, body) {
	const answer = await answered(path, body, AbortSignal.timeout(body ? CHANGE_MS : LOOK_MS));
	try {
		return await answer.json();
	} catch {
		throw new Problem(0, "The server's answer broke off.");
	}
}

/** The result of a call that reports its progress line by line. */
export async function follow(path, body, progress) {
	const reader = (await answered(path, body)).body.pipeThrough(new TextDecoderStream()).getReader();
	let rest = "";
	let result = null;
	for (;;) {
		const { value, done } = await reader.read();
		if (done) break;
		const lines = (rest + value).split("\n");
		rest = lines.pop();
		for (const line of lines.filter(Boolean)) {
			const report = JSON.parse(line);
			if (report.problem) throw new Problem(200, report.problem);
			if (report.result) result = report.result;
			else progress(report.done, report.of);
		}
	}
	if (!result) throw new Problem(0, "The connection broke off before the result.");
	return result;
}
