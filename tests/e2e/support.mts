/** A browser on a running editor, and the steps that scenarios are made of. */
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { stripVTControlCharacters } from "node:util";
// The only package a scenario needs is installed with the extension's.
import playwright from "../../vscode-client/node_modules/playwright-core/index.js";
import type { Locator, Page } from "../../vscode-client/node_modules/playwright-core/index.js";

export type { Locator, Page };

const patience = 60_000; // of every wait: a loaded machine is slow, not wrong

export function environment(name: string): string {
  const value = process.env[name];
  if (!value) {
    throw new Error(`the environment variable ${name} is not set; run the scenarios with pytest tests/e2e`);
  }
  return value;
}

/** What a scenario sees and does in one editor window. */
export class Window {
  private readonly started = Date.now();
  private shots = 0;
  readonly page: Page;
  private readonly shotsFolder: string;

  constructor(page: Page, shotsFolder: string) {
    this.page = page;
    this.shotsFolder = shotsFolder;
  }

  /** Reports a step as done and keeps a picture of it. */
  async step(what: string): Promise<void> {
    const seconds = ((Date.now() - this.started) / 1000).toFixed(1).padStart(6);
    console.log(`${seconds} s  ${what}`);
    this.shots += 1;
    const name = `${String(this.shots).padStart(2, "0")}-${what.replace(/[^A-Za-z0-9]+/g, "-").slice(0, 60)}.png`;
    await this.page.screenshot({ path: path.join(this.shotsFolder, name) });
  }

  squiggles(): Locator {
    return this.page.locator(".monaco-editor .squiggly-error");
  }

  /** Any code lens with this text. */
  lens(text: string | RegExp): Locator {
    return this.page.locator(".codelens-decoration a", { hasText: text });
  }

  /** Waits for the lens with this text over one kernel: the lowest above its `def`. */
  async lensOf(kernel: string, text: string | RegExp): Promise<Locator> {
    const deadline = Date.now() + patience;
    for (;;) {
      const below = (await boxOf(this.line(`def ${kernel}(`).first()))?.y ?? -1;
      const lenses = await this.page.locator(".codelens-decoration").all();
      const placed = await Promise.all(lenses.map(async (lens) => ({ lens, y: (await boxOf(lens))?.y ?? Infinity })));
      const nearest = placed.filter(({ y }) => y < below).sort((a, b) => b.y - a.y)[0];
      const link = nearest?.lens.locator("a", { hasText: text });
      if (link !== undefined && (await link.count()) > 0) {
        return link;
      }
      if (Date.now() > deadline) {
        throw new Error(`no lens with ${String(text)} over ${kernel} within ${patience / 1000} s`);
      }
      await this.page.waitForTimeout(100);
    }
  }

  notification(text: string | RegExp): Locator {
    return this.page.locator(".notification-toast", { hasText: text });
  }

  statusBar(text: string | RegExp): Locator {
    return this.page.locator(".statusbar-item", { hasText: text });
  }

  /** A line of the editor by part of its text. */
  line(text: string | RegExp): Locator {
    // Monaco draws blanks as no-break spaces; \s matches both.
    const pattern = typeof text === "string" ? new RegExp(escapeRegExp(text).replaceAll(" ", "\\s")) : text;
    return this.page.locator(".monaco-editor .view-line", { hasText: pattern });
  }

  /** Rests the mouse over what is drawn there; a squiggle itself lies under the text and takes no pointer. */
  async pointAt(target: Locator): Promise<void> {
    const box = await target.boundingBox();
    if (box === null) {
      throw new Error("nothing is drawn there to point at");
    }
    const x = box.x + Math.min(box.width / 2, 40);
    const y = box.y + box.height / 2;
    await this.page.mouse.move(x - 3, y);
    await this.page.mouse.move(x, y, { steps: 3 });
  }

  async runCommand(title: string): Promise<void> {
    await this.page.keyboard.press("F1");
    await this.page.keyboard.insertText(title);
    await this.page.locator(".quick-input-list .monaco-list-row", { hasText: title }).first().click();
  }

  async goToLine(line: number, column = 1): Promise<void> {
    await this.page.keyboard.press("Control+g");
    await this.page.keyboard.type(`${line}:${column}`);
    await this.page.keyboard.press("Enter");
    await this.page.locator(".quick-input-widget").waitFor({ state: "hidden" });
  }
}

/** Opens `URL` of the environment in a new browser, runs `scenario`, and leaves a picture of where it failed. */
export async function inWindow(scenario: (window: Window) => Promise<void>, expected?: string): Promise<void> {
  const shotsFolder = environment("TILEWRIGHT_E2E_SHOTS");
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), "tilewright-chromium-"));
  const context = await playwright.chromium.launchPersistentContext(profile, {
    executablePath: environment("TILEWRIGHT_E2E_CHROMIUM"),
    headless: true,
    viewport: { width: 1400, height: 900 },
    args: [
      "--no-sandbox", // continuous integration runs as root
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
  const page = context.pages()[0] ?? (await context.newPage());
  page.setDefaultTimeout(patience);
  const consoleLog = fs.createWriteStream(path.join(shotsFolder, "browser-console.log"));
  page.on("console", (message) => consoleLog.write(`${message.type()}: ${message.text()}\n`));
  try {
    await page.goto(environment("TILEWRIGHT_E2E_URL"), { waitUntil: "domcontentloaded" });
    await page.locator(".monaco-workbench").waitFor();
    await Promise.race([scenario(new Window(page, shotsFolder)), complaint(page, expected)]);
  } catch (error) {
    await page.screenshot({ path: path.join(shotsFolder, "failed.png") });
    const lines = await page.locator(".monaco-editor .view-line").allInnerTexts();
    const toasts = await page.locator(".notification-toast").allInnerTexts();
    console.error(`The editor showed:\n${lines.join("\n")}\nNotifications: ${toasts.join(" | ") || "none"}`);
    console.error(error instanceof Error ? stripVTControlCharacters(error.stack ?? error.message) : error);
    process.exitCode = 1;
  } finally {
    await context.close();
    fs.rmSync(profile, { recursive: true, force: true });
  }
}

/** Fails as soon as the extension reports that a command failed (but not of what is `expected`), rather than when a wait ends. */
async function complaint(page: Page, expected?: string): Promise<never> {
  const other = expected === undefined ? {} : { hasNotText: expected };
  const toast = page.locator(".notification-toast", { hasText: "Tilewright could not", ...other }).first();
  await toast.waitFor({ timeout: 0 });
  throw new Error((await toast.innerText()).replace(/\s+/g, " "));
}

/** Waits until `holds`, for what is outside the page. */
export async function eventually(what: string, holds: () => boolean): Promise<void> {
  const deadline = Date.now() + patience;
  while (!holds()) {
    if (Date.now() > deadline) {
      throw new Error(`${what} did not happen within ${patience / 1000} s`);
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Where it is drawn; null when it is not, or no longer. */
async function boxOf(target: Locator): Promise<{ readonly y: number } | null> {
  return (await target.count()) > 0 ? target.boundingBox({ timeout: 1000 }).catch(() => null) : null;
}

function escapeRegExp(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
