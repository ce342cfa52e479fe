/** Where kernels run: shown in the status bar, chosen from a list. */
import * as vscode from "vscode";
import { type RunnersResult, serverCommand } from "./protocol";
import type { Server } from "./server";
import { shortRunner } from "./text";

interface RunnerItem extends vscode.QuickPickItem {
  /** What to write into the setting; undefined asks for a command. */
  readonly runner: string | undefined;
}

export function registerRunners(server: Server): vscode.Disposable {
  const item = vscode.window.createStatusBarItem("tilewright.runner", vscode.StatusBarAlignment.Left, 9);
  item.name = "Tilewright Runner";
  item.command = "tilewright.selectRunner";

  function show(): void {
    const document = vscode.window.activeTextEditor?.document;
    if (!server.started || document?.languageId !== "python") {
      item.hide();
      return;
    }
    const runner = current(document);
    item.text = `$(server) ${shortRunner(runner)}`;
    item.tooltip = `Tilewright runs kernels on: ${runner}\nClick to choose another runner.`;
    item.show();
  }

  async function select(): Promise<void> {
    const document = vscode.window.activeTextEditor?.document;
    const chosen = await pick(server, document);
    if (chosen === undefined) {
      return;
    }
    const configuration = vscode.workspace.getConfiguration("tilewright", document?.uri);
    const target = vscode.workspace.workspaceFolders ? vscode.ConfigurationTarget.Workspace : true;
    await configuration.update("runner", chosen, target);
    show();
  }

  return vscode.Disposable.from(
    item,
    server.onDidStart(show),
    vscode.window.onDidChangeActiveTextEditor(show),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("tilewright.runner")) {
        show();
      }
    }),
    vscode.commands.registerCommand("tilewright.selectRunner", async () => {
      try {
        await select();
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        void vscode.window.showErrorMessage(`Tilewright could not change the runner: ${reason}`);
      }
    }),
  );
}

async function pick(server: Server, document: vscode.TextDocument | undefined): Promise<string | undefined> {
  const uri = document?.uri.toString() ?? "";
  const found = await server.execute<RunnersResult>(serverCommand.runners, { uri, kernel: "" });
  if (found.problem) {
    void vscode.window.showWarningMessage(`Tilewright: ${found.problem}`);
  }
  const now = current(document);
  const items: RunnerItem[] = found.runners.map(({ name, command }) => ({
    label: name === now ? `$(check) ${name}` : name,
    description: command || "this machine: its GPU, or the CPU interpreter without one",
    runner: name,
  }));
  items.push({ label: "$(edit) A command…", description: "such as ssh gpu-host tilewright-worker", runner: undefined });
  const chosen = await vscode.window.showQuickPick(items, {
    title: "Where Tilewright runs kernels",
    placeHolder: found.file ? `Runners of ${found.file}` : "Name runners under [tool.tilewright.runners] in pyproject.toml",
  });
  if (chosen === undefined || chosen.runner !== undefined) {
    return chosen?.runner;
  }
  const typed = await vscode.window.showInputBox({
    title: "Command that starts a worker",
    value: now === "local" ? "" : now,
    prompt: "It speaks over stdin and stdout, for example: ssh gpu-host tilewright-worker",
  });
  return typed?.trim() ? typed.trim() : undefined;
}

function current(document: vscode.TextDocument | undefined): string {
  return vscode.workspace.getConfiguration("tilewright", document?.uri).get<string>("runner") ?? "local";
}
