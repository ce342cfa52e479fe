/** The commands behind the code lenses: check, run, optimize and expand a kernel. */
import * as path from "node:path";
import * as vscode from "vscode";
import { LSPErrorCodes, ResponseError } from "vscode-languageclient/node";
import type { Proposals } from "./proposals";
import {
  type CheckResult,
  type ExpandResult,
  type KernelReference,
  type OptimizeResult,
  type ReportResult,
  type RunResult,
  serverCommand,
} from "./protocol";
import type { Server } from "./server";
import { describeCheck, describeRun } from "./text";
import { VirtualDocuments } from "./virtual";

export function registerKernelCommands(
  server: Server,
  proposals: Proposals,
  output: vscode.LogOutputChannel,
): vscode.Disposable {
  const expanded = new VirtualDocuments("tilewright-expanded");
  const reports = new VirtualDocuments("tilewright-run");

  const atWork = new Set<string>();

  /** The server's answer. One request of a kind at a time for a kernel: a second click is a mistake. */
  async function ask<Result>(name: keyof typeof serverCommand, kernel: KernelReference): Promise<Result> {
    const job = `${name} ${kernel.kernel} ${kernel.uri}`;
    if (atWork.has(job)) {
      throw new Error("the request before this one is still at work");
    }
    atWork.add(job);
    try {
      return await server.execute<Result>(serverCommand[name], kernel);
    } finally {
      atWork.delete(job);
    }
  }

  async function check(kernel: KernelReference): Promise<void> {
    const result = await ask<CheckResult>("check", kernel);
    const text = describeCheck(kernel.kernel, result);
    output.info(text);
    if (result.verdict !== "refuted") {
      void vscode.window.showInformationMessage(text);
    } else if ((await vscode.window.showErrorMessage(text, "Show Problems")) !== undefined) {
      await vscode.commands.executeCommand("workbench.actions.view.problems");
    }
  }

  async function run(kernel: KernelReference): Promise<void> {
    if (await requireTrust("Running a kernel")) {
      show(kernel, await ask<RunResult>("run", kernel));
    }
  }

  async function profile(kernel: KernelReference): Promise<void> {
    if (await requireTrust("Profiling a kernel")) {
      show(kernel, await ask<RunResult>("profile", kernel));
      await showRun(kernel);
    }
  }

  /** All figures of the last run, as a page beside the kernel. */
  async function showRun(kernel: KernelReference): Promise<void> {
    const { markdown } = await ask<ReportResult>("report", kernel);
    const uri = reports.put(`${kernel.kernel}.md`, markdown, kernel.uri);
    await vscode.commands.executeCommand("markdown.showPreviewToSide", uri);
  }

  function show(kernel: KernelReference, result: RunResult): void {
    const text = describeRun(kernel.kernel, result);
    output.info(`${text}\n${JSON.stringify(result, undefined, 2)}`);
    if (result.correct === false) {
      void vscode.window.showErrorMessage(text);
    } else {
      void vscode.window.showInformationMessage(text);
    }
  }

  async function optimize(kernel: KernelReference): Promise<void> {
    if (!(await requireTrust("Optimizing a kernel"))) {
      return;
    }
    const result = await ask<OptimizeResult>("optimize", kernel);
    await proposals.show(vscode.Uri.parse(kernel.uri), result);
  }

  async function expand(kernel: KernelReference): Promise<void> {
    const { source } = await ask<ExpandResult>("expand", kernel);
    const stem = path.basename(vscode.Uri.parse(kernel.uri).path, ".py");
    const uri = expanded.put(`${stem}.${kernel.kernel}.expanded.py`, source, kernel.uri);
    await vscode.window.showTextDocument(uri, { viewColumn: vscode.ViewColumn.Beside, preview: true });
  }

  /** Registers `action` so that a lens passes its kernel and the command palette takes the one at the cursor. */
  function register(name: string, action: (kernel: KernelReference) => Promise<void>): vscode.Disposable {
    return vscode.commands.registerCommand(`tilewright.${name}`, async (argument?: KernelReference) => {
      const kernel = argument ?? (await kernelAtCursor());
      if (kernel === undefined) {
        void vscode.window.showInformationMessage("There is no Tilewright kernel in the active editor.");
        return;
      }
      try {
        await action(kernel);
      } catch (error) {
        if (!wasCancelled(error)) {
          const reason = error instanceof Error ? error.message : String(error);
          output.error(`${name} ${kernel.kernel}: ${reason}`);
          const text = `Tilewright could not ${name} ${kernel.kernel}: ${reason}`;
          if ((await vscode.window.showErrorMessage(text, "Show Output")) !== undefined) {
            output.show();
          }
        }
      }
    });
  }

  return vscode.Disposable.from(
    expanded,
    register("check", check),
    reports,
    register("run", run),
    register("profile", profile),
    register("showRun", showRun),
    register("optimize", optimize),
    register("expand", expand),
  );
}

/** The last kernel whose lenses start at or above the cursor, else the first one. */
async function kernelAtCursor(): Promise<KernelReference | undefined> {
  const editor = vscode.window.activeTextEditor;
  if (editor === undefined) {
    return undefined;
  }
  const lenses = await vscode.commands.executeCommand<vscode.CodeLens[]>(
    "vscode.executeCodeLensProvider",
    editor.document.uri,
    Number.MAX_SAFE_INTEGER, // resolve all of them: a lens without its command says nothing
  );
  const line = editor.selection.active.line;
  const own = lenses
    .filter((lens) => lens.command?.command === "tilewright.check") // which every kernel has
    .sort((a, b) => a.range.start.line - b.range.start.line);
  const lens = own.filter(({ range }) => range.start.line <= line).at(-1) ?? own[0];
  return lens?.command?.arguments?.[0] as KernelReference | undefined;
}

async function requireTrust(what: string): Promise<boolean> {
  if (vscode.workspace.isTrusted) {
    return true;
  }
  const text = `${what} executes its code, which needs a trusted workspace. Checking works without.`;
  if ((await vscode.window.showWarningMessage(text, "Manage Workspace Trust")) !== undefined) {
    await vscode.commands.executeCommand("workbench.trust.manage");
  }
  return vscode.workspace.isTrusted;
}

function wasCancelled(error: unknown): boolean {
  const codes: number[] = [LSPErrorCodes.RequestCancelled, LSPErrorCodes.ServerCancelled];
  return error instanceof vscode.CancellationError || (error instanceof ResponseError && codes.includes(error.code));
}
