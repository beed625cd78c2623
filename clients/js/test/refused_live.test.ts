/** A stream over HTTP that ends with an error: prints the error's status and text. */
import { connect } from "../src/live_http.ts";

const [url, collection] = process.argv.slice(2) as [string, string];
const say = (name: string, value: unknown) => console.log(JSON.stringify([name, value]));
const db = connect(url);
db.collection(collection)
	.find({ n: 1 })
	.resultStream(
		() => {},
		(error) => say("error", [error.status, error.message]),
	);
process.stdin.on("data", () => {
	db.close();
	say("end", "closed");
	process.exit(0);
});
