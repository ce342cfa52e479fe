/** In a workspace that is not trusted, kernels are checked but not run. */
import { environment, inWindow } from "./support.mts";

const kernel = environment("TILEWRIGHT_E2E_KERNEL");

await inWindow(async (window) => {
  await window.page.locator(".statusbar-item", { hasText: "Restricted Mode" }).waitFor();
  await window.lensOf(kernel, "proved");
  await window.step("untrusted and checked");
  await (await window.lensOf(kernel, /^Run$/)).click();
  await window.notification("needs a trusted workspace").waitFor();
  await window.step("run asks for trust");
  if ((await window.notification(`${kernel}: `).count()) > 0) {
    throw new Error("a kernel of an untrusted workspace was run");
  }
});
