/* Bundles CodeMirror into src/cujit/explore/assets/vendored, with the licence of each package: `make editor`. */
import { build } from "esbuild";
import { existsSync, readFileSync, writeFileSync } from "node:fs";

const out = new URL("../../src/cujit/explore/assets/vendored/", import.meta.url).pathname;
const made = await build({
  entryPoints: ["entry.js"], bundle: true, minify: true, format: "iife", globalName: "CodeMirror", target: "es2022",
  charset: "ascii", legalComments: "none", metafile: true, write: false,
});

const names = new Set();
for (const path of Object.keys(made.metafile.inputs)) {
  const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path);
  if (found) names.add(found[1]);
}
const packages = [...names].sort().map((name) => {
  const { version, license } = JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8"));
  const text = ["LICENSE", "LICENSE.md", "license"].map((file) => `node_modules/${name}/${file}`).find(existsSync);
  if (license !== "MIT" || !text) throw new Error(`${name}: ${license}, ${text}: look at its licence first`);
  return { said: `${name} ${version}`, text: readFileSync(text, "utf8").trim() };
});

const head = `/* ${packages.map(({ said }) => said).join(", ")}; all MIT, see LICENSES.txt. */\n`;
// A script block ends at its first "</script", whatever it stands in.
const code = made.outputFiles[0].text.replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
writeFileSync(`${out}editor.js`, head + code);
const licenses = packages.map(({ said, text }) => `${said}\n${"=".repeat(said.length)}\n\n${text}\n`);
writeFileSync(`${out}LICENSES.txt`, `editor.js is bundled of these packages.\n\n${licenses.join("\n\n")}`);
