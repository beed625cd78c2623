// A section about named things in the folder: the newest state every two seconds, and an operator's changes.

import { $, show } from "./words.js";

const EVERY_MS = 2000;

/**
 * Show the section as long as alive() holds.
 *
 * call: of server.js. path: of changes. choice: id of the list of names; buttons are `choice-act`, and
 * `choice-done` is for sentences. sentence: (act, name, answer) of a change. look: shows the state; its argument
 * tells whether a change is under way; false ends the section.
 */
export async function keepSection(alive, call, { path, choice, acts, sentence, look }) {
	let busy = false, looking = Promise.resolve();

	async function change(act) {
		const name = $(choice).value;
		busy = true;
		try {
			const { done } = await call(path, { do: act, name });
			show($(`${choice}-done`), sentence(act, name, done));
		} catch (error) {
			if (error.status === undefined) throw error;
			show($(`${choice}-done`), error.message);
		} finally {
			busy = false;
		}
		await quiet();
	}

	/** No older state replaces a newer one. */
	function quiet() {
		return (looking = looking.then(now, now));
	}

	async function now() {
		try {
			return await look(() => busy);
		} catch (error) {
			if (error.status === undefined) throw error;
			if (error.status) show($(`${choice}-done`), error.message);
			return true;
		}
	}

	for (const act of acts) $(`${choice}-${act}`).onclick = () => change(act);
	$(choice).onchange = () => quiet();
	while (alive()) {
		if (!document.hidden && !(await quiet())) return;
		await new Promise((wake) => setTimeout(wake, EVERY_MS));
	}
}
