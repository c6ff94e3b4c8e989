// Draw SVG files as PNG, 256 pixels wide: node render.mjs <folder of resvg> <folder of PNG> <file.svg> ...
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { basename, join, resolve } from "node:path";

const [resvg, target, ...files] = process.argv.slice(2);
const { initWasm, Resvg } = await import(resolve(resvg, "index.mjs"));
await initWasm(await readFile(join(resvg, "index_bg.wasm")));
await mkdir(target, { recursive: true });
for (const file of files) {
  const image = new Resvg(await readFile(file, "utf8"), { fitTo: { mode: "width", value: 256 } }).render();
  await writeFile(join(target, basename(file, ".svg").toLowerCase() + ".png"), image.asPng());
}
