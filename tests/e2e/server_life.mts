/** A server that cannot start, one that starts once the setting is right, and one that dies. */
import fs from "node:fs";
import { environment, eventually, inWindow } from "./support.mts";

const kernel = environment("TILEWRIGHT_E2E_KERNEL");
const machineSettings = environment("TILEWRIGHT_E2E_MACHINE_SETTINGS"); // a file that VS Code watches
const goodSettings = environment("TILEWRIGHT_E2E_GOOD_SETTINGS");
const pidFile = environment("TILEWRIGHT_E2E_PID_FILE"); // written by the good server

await inWindow(async (window) => {
  const failure = window.notification("language server did not start");
  await failure.waitFor();
  console.log(`         message: ${(await failure.innerText()).replace(/\s+/g, " ")}`);
  await window.statusBar("Tilewright: server stopped").waitFor();
  await window.step("failure is told");
  await failure.locator(".monaco-button", { hasText: "Open Settings" }).click();
  await window.page.locator(".settings-editor").waitFor();
  await window.page.locator(".setting-item", { hasText: /Server:\s*Command/ }).first().waitFor();
  await window.step("settings open");

  await window.page.keyboard.press("Escape");
  await window.page.locator(".settings-editor").waitFor({ state: "hidden" });
  fs.writeFileSync(machineSettings, goodSettings);
  await window.lensOf(kernel, "proved");
  await window.statusBar(/Tilewright: [1-9]\d* proved/).waitFor();
  await window.step("the corrected setting starts the server");

  const pid = fs.readFileSync(pidFile, "utf8").trim();
  process.kill(Number(pid), "SIGKILL");
  await eventually("starting the server again", () => fs.readFileSync(pidFile, "utf8").trim() !== pid);
  await window.lensOf(kernel, "proved");
  await window.statusBar(/Tilewright: [1-9]\d* proved/).waitFor();
  await window.step("a killed server comes back with its verdicts");

  const second = fs.readFileSync(pidFile, "utf8").trim();
  await window.runCommand("Tilewright: Restart Server");
  await eventually("the restart", () => fs.readFileSync(pidFile, "utf8").trim() !== second);
  await window.statusBar(/Tilewright: [1-9]\d* proved/).waitFor();
  await window.lensOf(kernel, /^Run$/);
  await window.step("restarted by command");
});
