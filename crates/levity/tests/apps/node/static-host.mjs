// What Cloudflare Pages answers to requests by the `_redirects` and `_headers` of sites: its own parser and matcher, from npm.
// The file that is named has a JSON array of { redirects, headers, requests }; the answers go to standard output.
import { build } from "esbuild";
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const pages = "@cloudflare/pages-shared";
const contents = `
export { parseRedirects } from "${pages}/metadata-generator/parseRedirects";
export { parseHeaders } from "${pages}/metadata-generator/parseHeaders";
export { createMetadataObject } from "${pages}/metadata-generator/createMetadataObject";
export { generateHandler } from "${pages}/asset-server/handler";`;
const outfile = `${process.cwd()}/pages.mjs`;
const stdin = { contents, resolveDir: process.cwd() };
await build({ stdin, outfile, bundle: true, platform: "node", format: "esm", logLevel: "error" });
const { parseRedirects, parseHeaders, createMetadataObject, generateHandler } = await import(pathToFileURL(outfile));

async function answer(metadata, url) {
  const request = new Request(new URL(url, "https://site.example"));
  const response = await generateHandler({ request, metadata, findAssetEntryForPath: async () => null });
  const header = (name) => response.headers.get(name);
  return { status: response.status, location: header("location"), found: header("x-found") };
}

const answers = [];
for (const { redirects, headers, requests } of JSON.parse(await readFile(process.argv[2], "utf8"))) {
  const metadata = createMetadataObject({ redirects: parseRedirects(redirects), headers: parseHeaders(headers) });
  answers.push(await Promise.all(requests.map((url) => answer(metadata, url))));
}
console.log(JSON.stringify(answers));
