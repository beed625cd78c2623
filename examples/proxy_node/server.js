// A Node program behind `quaestor proxy`: it says what its answers were made of, in a field that never leaves the proxy.
import { createServer } from "node:http";
import { MongoClient } from "mongodb";

const client = new MongoClient(process.env.MONGO_URL);
const items = client.db(process.env.DATABASE ?? "examples").collection("items");
const port = Number(process.env.PORT ?? 3000);

async function body(request) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  return JSON.parse(Buffer.concat(pieces).toString());
}

createServer(async (request, response) => {
  const shelf = /^\/shelves\/(\d+)$/.exec(request.url);
  response.setHeader("Content-Type", "application/json");
  try {
    if (request.method === "GET" && shelf) {
      const filter = { shelf: Number(shelf[1]) };
      const found = await items.find(filter, { projection: { _id: 0 } }).sort({ name: 1 }).toArray();
      response.setHeader("Quaestor-Depends", JSON.stringify([{ collection: "items", filter, sort: { name: 1 } }]));
      response.end(JSON.stringify(found));
    } else if (request.method === "POST" && request.url === "/items") {
      const { name, shelf } = await body(request);
      const item = { name: String(name), shelf: Number(shelf) };
      await items.insertOne({ ...item });
      response.writeHead(201).end(JSON.stringify(item));
    } else {
      response.writeHead(404).end("{}");
    }
  } catch (error) {
    console.error(error);
    response.writeHead(500).end("{}");
  }
}).listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${port}`));
