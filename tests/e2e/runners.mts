/** Where kernels run is chosen from a list; what became of a run stands over the kernel and has a page. */
import { environment, inWindow } from "./support.mts";

const kernel = environment("TILEWRIGHT_E2E_KERNEL");

await inWindow(async (window) => {
  await window.lensOf(kernel, "proved");
  const runner = window.page.locator(".statusbar-item", { hasText: "local" });
  await runner.waitFor();
  await window.step("the status bar says where kernels run");

  await (await window.lensOf(kernel, /^Run$/)).click();
  await window.lensOf(kernel, /correct · interpreter \(no GPU\)/);
  await window.step("the last run stands over the kernel, labelled as interpreted");
  await (await window.lensOf(kernel, /correct · interpreter/)).click();
  await window.page.locator(".tab", { hasText: `Preview ${kernel}.md` }).waitFor();
  await window.step("its figures are a page");

  await window.line(`def ${kernel}(`).first().click();
  await runner.click();
  const rows = window.page.locator(".quick-input-list .monaco-list-row");
  await rows.filter({ hasText: "ssh nowhere.invalid worker" }).waitFor();
  await window.step("runners of pyproject.toml are offered");
  await rows.filter({ hasText: "gone" }).first().click();
  await window.page.locator(".statusbar-item", { hasText: "gone" }).waitFor();
  await window.step("the chosen one stands in the status bar");

  await (await window.lensOf(kernel, /^Run$/)).click();
  await window.notification(`could not run ${kernel}`).waitFor();
  await window.lensOf(kernel, /✗ .*was not run/);
  await window.step("a runner that is dead is said over the kernel");
}, `could not run ${kernel}`);
