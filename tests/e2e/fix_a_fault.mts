/** A faulty kernel is opened; squiggle and counterexample appear; the line is fixed by typing; both vanish. */
import fs from "node:fs";
import path from "node:path";
import { environment, eventually, inWindow } from "./support.mts";

const file = path.join(environment("TILEWRIGHT_E2E_WORKSPACE"), environment("TILEWRIGHT_E2E_FILE"));
const kernel = environment("TILEWRIGHT_E2E_KERNEL");
const faulty = environment("TILEWRIGHT_E2E_FAULTY"); // the line with the fault, without its indentation
const fixed = environment("TILEWRIGHT_E2E_FIXED");

await inWindow(async (window) => {
  await window.line(faulty).waitFor();
  await window.step("faulty kernel open");
  await window.squiggles().first().waitFor();
  await window.step("squiggle");
  await window.lensOf(kernel, "refuted");
  await window.statusBar(/Tilewright: \d+ proved \/ [1-9]\d* refuted/).waitFor();
  await window.step("lens and status bar say refuted");

  const source = fs.readFileSync(file, "utf8").split("\n");
  const line = source.findIndex((text) => text.trim() === faulty) + 1;
  const indent = (source[line - 1] ?? "").length - faulty.length;
  await window.pointAt(window.squiggles().first());
  const hover = window.page.locator(".monaco-hover", { hasText: /counterexample/i });
  await hover.first().waitFor();
  console.log(`         hover: ${(await hover.first().innerText()).replace(/\s+/g, " ").slice(0, 600)}`);
  await window.step("hover shows the counterexample");
  await window.page.mouse.move(5, 890);

  await window.line(faulty).first().click();
  await window.goToLine(line, indent + 1);
  await window.page.keyboard.press("Shift+End");
  await window.page.keyboard.type(fixed);
  await window.squiggles().first().waitFor({ state: "detached" });
  await window.step("squiggle gone");
  await window.page.keyboard.press("Control+Home"); // the lens may have scrolled away
  await window.lensOf(kernel, "proved");
  await window.statusBar(/Tilewright: [1-9]\d* proved \/ 0 refuted/).waitFor();
  await window.step("lens and status bar say proved");

  await window.page.keyboard.press("Control+s");
  await eventually("saving the fixed kernel", () => fs.readFileSync(file, "utf8").includes(fixed));
  await window.step("saved");
});
