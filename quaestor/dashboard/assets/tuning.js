// Tuning: a draft of the parameters is edited, tried on the recorded trace, and applied, for a share of the results first if
// wanted; every application can be undone.

import { deed, startCanary } from "./canary.js";
import { chart } from "./charts.js";
import { marksOf } from "./marks.js";
import { changes, FIELDS, fieldsOf } from "./parameters.js";
import { recommendation } from "./recommend.js";
import { call, follow, Problem } from "./server.js";
import { $, choices, element, number, rows, share, show, time } from "./words.js";

const copied = (value) => JSON.parse(JSON.stringify(value));
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

export function startTuning() {
	let state = null;
	let draft = null;
	let tried = null;
	let result = null;
	let busy = false;
	let sending = false;
	const kinds = new Set();
	const charts = {};
	const canary = startCanary((path) => send(path, {}, $("canary-acted")));

	const chosen = () => $("for").value;
	const tuning = () => draft.kinds[chosen()] ?? draft.default;
	const possible = () => state?.parameters !== undefined;

	function take(fresh) {
		const untouched = !state || same(draft, state.parameters);
		state = fresh;
		if (!possible()) {
			show($("trial"), "This application has an estimator of its own: its lifetimes are tuned there.");
			show($("canary-status"), "This application has an estimator of its own: there is no canary of it.");
			for (const one of document.querySelectorAll("#tuning input, #tuning select, #tuning button")) one.disabled = true;
			return;
		}
		if (!$("delta").value) $("delta").value = state.delta_s;
		if (untouched) draft = copied(state.parameters);
		$("readonly").hidden = state.may_apply;
		$("applying").hidden = !state.may_apply;
		choices($("estimator"), state.estimators.map((name) => [name, name]));
		if (!state.trace && !$("trial").textContent) show($("trial"), "Nothing is recorded to try it on: set trace_file and start the app again.");
		draw();
		canary.take(state);
	}

	function draw() {
		choices($("for"), [["", "all collections without numbers of their own"], ...[...new Set([...kinds, ...Object.keys(draft.kinds)])].sort().map((kind) => [kind, kind])]);
		const own = !chosen() || chosen() in draft.kinds;
		$("own-row").hidden = !chosen();
		$("own").checked = own;
		$("estimator").value = tuning().estimator;
		$("estimator").disabled = !own;
		drawFields(own);
		drawChanges();
		drawTrail();
	}

	function drawFields(own) {
		const wanted = `${chosen()}\n${tuning().estimator}`;
		if ($("fields").dataset.of !== wanted) {
			$("fields").dataset.of = wanted;
			$("fields").replaceChildren(...fieldsOf(tuning().estimator).map(([name, field]) => fieldset(name, field)));
		}
		for (const input of $("fields").querySelectorAll("input")) {
			const field = FIELDS[input.dataset.name];
			const value = tuning()[input.dataset.name];
			input.disabled = !own;
			if (input.type === "checkbox") input.checked = value;
			else if (input !== document.activeElement || input.type === "range") input.value = field.toShown(value);
			if (input.type === "range") show(input.parentElement.querySelector("output"), field.words(value));
		}
	}

	function fieldset(name, field) {
		const id = `field-${name}`;
		const input = element("input", null, { id });
		input.dataset.name = name;
		const row = element("div", null, { className: "field" }, element("label", field.unit ? `${field.label}, ${field.unit}` : field.label, { htmlFor: id }));
		if (field.slider) {
			[input.min, input.max, input.step] = field.slider;
			input.type = "range";
			row.append(element("output", "", { htmlFor: id }), input);
		} else if (typeof tuning()[name] === "boolean") {
			input.type = "checkbox";
			row.append(input);
		} else {
			Object.assign(input, { type: "number", min: field.unit === "s" ? 0.001 : 0, step: "any", required: true });
			row.append(input);
		}
		if (field.help) {
			input.setAttribute("aria-describedby", `${id}-help`);
			row.append(element("small", field.help, { id: `${id}-help` }));
		}
		return row;
	}

	function drawChanges() {
		const lines = changes(state.parameters, draft);
		$("changes").replaceChildren(...(lines.length ? lines : ["nothing"]).map((line) => element("li", line)));
		const untried = state.trace && tried !== JSON.stringify(draft);
		$("apply").disabled = busy || sending || !lines.length || untried;
		$("try").disabled = busy || !state.trace;
		$("begin").disabled = $("apply").disabled || !state.trace;
		show($("apply"), state.trace ? "Apply" : "Apply without a trial");
		$("apply").title = untried && lines.length ? "Try it first" : "";
	}

	function drawTrail() {
		let undone = false;
		$("trail").replaceChildren(...state.history.map((one, i) => {
			const what = one.number ? deed(one, state.history[i + 1]) : "";
			const when = one.number ? `${new Date(one.at_ms).toLocaleString()}, ${one.by}: ` : "";
			const settings = one.settings && one.number && !one.canary ? " (as the settings say)" : "";
			const text = `${when}${what || (one.number ? "" : "as the settings say")}${settings}${i ? "" : " · counts now"}`;
			const item = element("li", text, { value: one.number });
			if (i && !one.canary && state.may_apply) {
				const button = element("button", undone ? "Back to this" : "Undo: back to this", { type: "button" });
				undone = true;
				button.setAttribute("aria-label", `${button.textContent}, number ${one.number}`);
				button.addEventListener("click", () => send("apply", { restore: one.number }));
				item.append(" ", button);
			}
			return item;
		}));
	}

	async function tryIt() {
		const asked = copied(draft);
		busy = true;
		result = null;
		$("progress").hidden = false;
		$("progress").value = 0;
		show($("trial"), "Reading the trace …");
		drawChanges();
		try {
			const body = { parameters: asked, clients: Number($("clients").value), delta_s: Number($("delta").value) };
			result = await follow("what-if", body, (done, of) => {
				$("progress").value = done / of;
				show($("trial"), `Simulation ${done} of ${of}`);
			});
			tried = JSON.stringify(asked);
			delete $("points").dataset.text;
			const { trace } = result;
			show($("trial"), `Tried on ${number(trace.reads)} requests for ${number(trace.results)} results in ${time(1000 * trace.seconds)}, recorded until ${new Date(trace.until_ms).toLocaleTimeString()}${trace.share < 1 ? `, ${share(trace.share)} of the results` : ""}.`);
			drawResult();
		} catch (error) {
			if (!(error instanceof Problem)) throw error;
			show($("trial"), error.message);
		} finally {
			busy = false;
			$("progress").hidden = true;
			drawChanges();
		}
	}

	function drawResult() {
		$("result").hidden = false;
		const saved = (point) => result.uncached_origin_ms - point.figures.origin_ms[0];
		charts.purges ??= chart($("chart-purges"), { series: ["as it is now", "chosen", "on the front", "not on it"], words: number, x: number, kind: "points", spread });
		charts.stale ??= chart($("chart-stale"), { series: ["as it is now", "chosen", "on the front", "not on it"], words: number, x: number, kind: "points", spread });
		const place = (point) => (point.name === "now" ? 0 : point.name === "chosen" ? 1 : point.front ? 2 : 3);
		for (const [target, x] of [[charts.purges, (point) => point.figures.purges_hz[0]], [charts.stale, (point) => 100 * point.figures.stale[0]]]) {
			const ordered = [...result.points].sort((a, b) => x(a) - x(b));
			target.draw(
				[ordered.map(x), ...[0, 1, 2, 3].map((i) => ordered.map((point) => (place(point) === i ? saved(point) : null)))],
				ordered.map((point) => `${point.name}: ${number(x(point))}, ${number(saved(point))} ms saved`).join("; "),
			);
		}
		const price = Number($("price").value) || 0;
		const cdn = !document.body.classList.contains("no-cdn");
		const pm = ([mean, half], words) => `${words(mean)} ± ${words(half)}`;
		rows($("points"), ["parameters", "#origin ms a request", "#saved", ...(cdn ? ["#purges a second", "#price a month"] : []), "#stale", "#fresh in browsers", "#false positives", "#p99"], result.points.map((point) => {
			const figures = point.figures;
			return [
				`${point.front ? "★ " : ""}${point.name}`, pm(figures.origin_ms, number), `${number(saved(point))} ms`,
				...(cdn ? [pm(figures.purges_hz, number), number(figures.purges_hz[0] * 2_592 * price)] : []), pm(figures.stale, share), pm(figures.browser_fresh, share), pm(figures.false_positives, share), time(figures.p99_ms[0]),
			];
		}));
		for (const [i, row] of [...$("points").tBodies[0].rows].entries()) {
			const point = result.points[i];
			if (i < 2 || row.querySelector("button")) continue;
			const button = element("button", "Take over", { type: "button" });
			button.setAttribute("aria-label", `Take over ${point.name}`);
			button.addEventListener("click", () => takeOver(point));
			row.cells[0].append(" ", button);
		}
		drawRecommendation();
	}

	function takeOver(point) {
		draft = copied(point.parameters);
		tried = JSON.stringify(draft);
		draw();
	}

	function drawRecommendation() {
		if (!result || !$("goal").checkValidity() || $("goal").value === "") return;
		const { point, why } = recommendation(result.points, Number($("goal").value) / 100);
		show($("recommendation"), why);
		$("take").hidden = !point || point.name === "chosen";
	}

	/** Publish parameters, based on the newest number known here; status: the element that shows the outcome. */
	async function send(path, what, status = $("applied")) {
		const by = $("by").value.trim();
		if (!by) {
			show(status, "Say who you are first, for the audit trail.");
			$("by").focus();
			return;
		}
		if (sending) return;
		sending = true;
		show(status, path === "canary" ? "Predicting from the trace …" : "");
		drawChanges();
		try {
			const fresh = await call(path, { by, base: state.number, ...what });
			draft = copied(fresh.parameters);
			show(status, `Number ${fresh.number} counts now; every process takes it up within seconds.`);
			take(fresh);
		} catch (error) {
			if (!(error instanceof Problem)) throw error;
			show(status, error.message);
			if (error.status === 409) take(await call("parameters"));
		} finally {
			sending = false;
			drawChanges();
		}
	}

	$("for").addEventListener("change", draw);
	$("own").addEventListener("change", () => {
		if ($("own").checked) draft.kinds[chosen()] = copied(draft.default);
		else delete draft.kinds[chosen()];
		draw();
	});
	$("estimator").addEventListener("change", () => {
		tuning().estimator = $("estimator").value;
		draw();
	});
	$("fields").addEventListener("input", ({ target }) => {
		const field = FIELDS[target.dataset.name];
		if (target.type !== "checkbox" && (target.value === "" || !target.checkValidity())) return;
		tuning()[target.dataset.name] = target.type === "checkbox" ? target.checked : field.toKept(Number(target.value));
		drawFields(true);
		drawChanges();
	});
	$("goal").addEventListener("input", drawRecommendation);
	$("take").addEventListener("click", () => takeOver(recommendation(result.points, Number($("goal").value) / 100).point));
	$("price").addEventListener("input", () => result && drawResult());
	$("reset").addEventListener("click", () => {
		draft = copied(state.parameters);
		draw();
	});
	$("form").addEventListener("submit", (event) => {
		event.preventDefault();
		tryIt();
	});
	$("applying").addEventListener("submit", (event) => {
		event.preventDefault();
		send("apply", { parameters: draft });
	});
	$("begin").addEventListener("click", () => {
		if (!$("applying").reportValidity()) return;
		const hold_ms = Math.round(1000 * Number($("hold").value));
		const guards = Object.fromEntries([["stale_at_most", $("guard-stale")], ["hits_at_least", $("guard-hits")]].filter(([, field]) => field.value !== "").map(([name, field]) => [name, Number(field.value) / 100]));
		send("canary", { parameters: draft, share: Number($("share").value), after: Number($("after").value), hold_ms, promote: $("promotes").checked, ...guards });
	});

	return {
		take,
		/** Note which number counts, what is known of its canary, and which collections there are. */
		async published(counting, counted, seen) {
			const before = kinds.size;
			for (const kind of seen) kinds.add(kind);
			if (!possible()) return;
			if (counting !== null && counting >= state.number) canary.note(counted);
			if (kinds.size !== before) draw();
			if (sending || counting === null || counting <= state.number) return;
			const fresh = await call("parameters").catch(() => null);
			if (!fresh || sending || fresh.number <= state.number) return;
			const [newest] = fresh.history;
			const deeds = newest.canary ? "begun a canary" : "applied other parameters";
			show($("applied"), newest.why ? `Number ${fresh.number} counts now.` : `${newest.by} has ${deeds} meanwhile (number ${fresh.number}).`);
			show($("canary-acted"), "");
			take(fresh);
		},
		/** The times at which parameters were applied, for charts. */
		marks() {
			return possible() ? marksOf(state.history) : [];
		},
		/** The quantile that is asked for, of a collection; null: none is. */
		quantileOf(kind) {
			if (!possible()) return null;
			const of = state.parameters.kinds[kind] ?? state.parameters.default;
			return FIELDS.quantile.of.includes(of.estimator) ? of.quantile : null;
		},
	};
}

/** A range with room at both ends, also for one point alone. */
function spread(_, low, high) {
	const room = high > low ? 0.08 * (high - low) : Math.abs(high) * 0.5 || 1;
	return [Math.max(low - room, 0), high + room];
}
