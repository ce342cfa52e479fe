/** On a machine without a GPU: Run answers from the interpreter and says so; Optimize ends in a diff to apply. */
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { environment, eventually, inWindow, type Window } from "./support.mts";

const file = path.join(environment("TILEWRIGHT_E2E_WORKSPACE"), environment("TILEWRIGHT_E2E_FILE"));
const kernel = environment("TILEWRIGHT_E2E_KERNEL");

await inWindow(async (window) => {
  const before = fs.readFileSync(file, "utf8");
  await window.lensOf(kernel, "proved");
  await window.line(/acc:\sf32\[\d+,\s\d+\]/).first().waitFor();
  await window.step("lens says proved, inlay hints show shapes");

  await window.pointAt(window.line("tw.mma(").locator("span", { hasText: "acc" }).last());
  await showsHover(window, /\w+: f(16|32)\[\d+, \d+\]/);
  await window.step("hover shows the type of a value");
  await window.pointAt(window.line(`def ${kernel}(`).locator("span", { hasText: kernel }).last());
  await showsHover(window, /obligations[\s\S]*predicted [\d.]+ (µs|ms)/);
  await window.step("hover shows the facts of the kernel");
  await window.page.mouse.move(5, 890);

  await (await window.lensOf(kernel, "proved")).click();
  await window.notification(new RegExp(`${kernel}: proved, (\\d+) of \\1 obligations proved`)).waitFor();
  await window.step("check answers with the verdict");

  await (await window.lensOf(kernel, /^Run$/)).click();
  const result = window.notification(new RegExp(`${kernel}: correct .*interpreter`));
  await result.waitFor();
  console.log(`         run: ${(await result.innerText()).replace(/\s+/g, " ")}`);
  await window.step("run is correct on the interpreter");

  await (await window.lensOf(kernel, /^Expand$/)).click();
  const expansion = window.page.locator(".tab", { hasText: `.${kernel}.expanded.py` });
  await expansion.waitFor();
  await window.line(/tw\.barrier|tw\.wgmma|tw\.cp_async/).first().waitFor();
  await window.step("expand shows explicit instructions beside the kernel");
  await window.runCommand("View: Close Editor");
  await expansion.waitFor({ state: "detached" });

  await window.line(`def ${kernel}(`).first().click();
  await window.page.keyboard.press("Control+.");
  const action = window.page.locator(".action-widget .monaco-list-row", { hasText: `Optimize ${kernel}` });
  await action.waitFor();
  await window.step("optimize is a code action too");
  await window.page.keyboard.press("Escape");
  await action.waitFor({ state: "detached" });

  await (await window.lensOf(kernel, /^Optimize$/)).click();
  const progress = window.notification(`Optimizing ${kernel}`);
  await progress.locator(".monaco-button", { hasText: "Cancel" }).click();
  await progress.waitFor({ state: "detached" });
  await window.step("optimizing can be cancelled");

  await (await window.lensOf(kernel, /^Optimize$/)).click();
  await window.page.locator(".diff-editor, .monaco-diff-editor").first().waitFor();
  const tab = window.page.locator(".tab", { hasText: `${kernel}: optimized (proved` });
  await tab.waitFor();
  const title = (await tab.innerText()).replace(/\s+/g, " ").trim();
  console.log(`         diff: ${title}`);
  assert.match(title, /optimized \(proved, [\d.]+ (µs|ms|s) (measured|predicted)\)/);
  await window.page.locator(".line-insert, .char-insert").first().waitFor();
  await window.step("optimize shows a diff with verdict and timing");
  assert.equal(fs.readFileSync(file, "utf8"), before, "nothing changes before Apply");

  // Somebody edits the kernel meanwhile: the proposal no longer fits and must not be forced onto it.
  const original = window.page.locator(".editor.original .view-line").first();
  await original.click();
  await window.page.keyboard.press("Control+Home");
  await window.page.keyboard.type("#");
  await window.notification(`${kernel}: proved`).locator(".monaco-button", { hasText: "Apply" }).click();
  await window.notification("was not applied").waitFor();
  await window.step("a proposal for an older text is refused");
  await original.click();
  await window.page.keyboard.press("Control+z");
  await window.page.locator('.editor-actions a[aria-label^="Apply Proposal"]').click();
  await tab.waitFor({ state: "detached" });
  await window.lensOf(kernel, "proved");
  await window.page.keyboard.press("Control+s");
  await eventually("saving the proposal", () => fs.readFileSync(file, "utf8") !== before);
  await window.step("proposal applied, proved and saved");
});

async function showsHover(window: Window, text: RegExp): Promise<void> {
  const hover = window.page.locator(".monaco-hover", { hasText: text }).first();
  await hover.waitFor();
  console.log(`         hover: ${(await hover.innerText()).replace(/\s+/g, " ").slice(0, 800)}`);
}
