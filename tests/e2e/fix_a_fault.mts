/**
 * A faulty kernel is opened; the findings of the command line appear as squiggles with their counterexample; a quick
 * fix repairs it; after undo, typing repairs it too; the findings vanish and the verdict is proved.
 */
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { environment, eventually, inWindow } from "./support.mts";

const kernel = environment("TILEWRIGHT_E2E_KERNEL");
const file = path.join(environment("TILEWRIGHT_E2E_WORKSPACE"), environment("TILEWRIGHT_E2E_FILE"));
const faulty = environment("TILEWRIGHT_E2E_FAULTY"); // the line with the fault, without its indentation
const fixed = environment("TILEWRIGHT_E2E_FIXED");
/** What `tilewright check` says about the file; lines count from 1. */
const findings = JSON.parse(environment("TILEWRIGHT_E2E_FINDINGS")) as { line: number; message: string }[];
const [first] = findings;
if (first === undefined) {
  throw new Error("the command line found no fault");
}

const source = fs.readFileSync(file, "utf8").split("\n");
assert.ok(source.some((text) => text.trim() === faulty) && !source.some((text) => text.includes(fixed)));

await inWindow(async (window) => {
  await window.lensOf(kernel, "refuted");
  await window.statusBar(/Tilewright: \d+ proved \/ [1-9]\d* refuted/).waitFor();
  await window.step("lens and status bar say refuted");

  await window.page.keyboard.press("Control+Shift+m");
  const problems = window.page.locator(".markers-panel");
  await problems.locator(".monaco-list-row", { hasText: first.message }).first().waitFor();
  await window.page.locator(`[id="status.problems"] [aria-label*="Errors: ${findings.length}"]`).first().waitFor();
  await window.step("the findings of the command line are in the Problems panel");
  await window.page.keyboard.press("Control+j");
  await problems.waitFor({ state: "hidden" });

  await window.line("import tilewright").first().click();
  await window.goToLine(first.line, 20);
  await window.squiggles().first().waitFor();
  await window.pointAt(window.squiggles().first());
  const hover = window.page.locator(".monaco-hover", { hasText: /counterexample/i }).filter({ hasText: first.message });
  await hover.first().waitFor();
  console.log(`         hover: ${(await hover.first().innerText()).replace(/\s+/g, " ").slice(0, 400)}`);
  await window.step("hover over the squiggle shows the counterexample");
  await window.page.mouse.move(5, 890);

  await window.page.keyboard.press("Control+.");
  const fix = window.page.locator(".action-widget .monaco-list-row", { hasText: fixed });
  await fix.first().waitFor();
  await window.step("a quick fix is offered");
  await fix.first().click();
  await window.line(fixed).first().waitFor();
  await window.squiggles().first().waitFor({ state: "detached" });
  await window.step("the quick fix clears the squiggle");
  await window.page.keyboard.press("Control+z");
  await window.line(faulty).first().waitFor();
  await window.squiggles().first().waitFor();

  await window.goToLine(source.findIndex((text) => text.includes(faulty)) + 1);
  await window.page.keyboard.press("End");
  await window.page.keyboard.press("Shift+Home"); // stops at the indentation
  await window.page.keyboard.type(fixed);
  await window.statusBar(/Tilewright: [1-9]\d* proved \/ 0 refuted/).waitFor();
  await window.goToLine(first.line);
  await window.squiggles().first().waitFor({ state: "detached" });
  await window.step("fixed by typing, squiggle gone");
  await window.goToLine(source.findIndex((text) => text.startsWith(`def ${kernel}(`)) + 1);
  await window.lensOf(kernel, "proved");
  await window.step("lens says proved");

  await window.page.keyboard.press("Control+s");
  await eventually("saving the fixed kernel", () => fs.readFileSync(file, "utf8").includes(fixed));
  await window.step("saved");
});
