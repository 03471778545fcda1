// A client as a user of the API would write it: types from the document, nothing else from us.
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

declare const process: { argv: string[] };

const [base, token] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: base, headers: { Authorization: `Bearer ${token}` } });

const { data, error } = await client.GET("/api/v1/runs", {
  params: { query: { triggerType: ["manual"], limit: 10 } },
});
if (error !== undefined || data === undefined) {
  throw new Error(JSON.stringify(error));
}
for (const run of data.items) {
  console.log(run.id);
}

export {};
