/** Entry point: wires the language server, its status and the kernel commands into the editor. */
import * as vscode from "vscode";
import { registerKernelCommands } from "./commands";
import { onDidChangeInterpreter } from "./interpreters";
import { Proposals } from "./proposals";
import { registerRunners } from "./runners";
import { Server } from "./server";
import { StatusBar } from "./status";

/** Decides only when to start the server; what is a kernel is the server's business. */
const importsTilewright = /^\s*(?:import|from)\s+tilewright\b/m;

let server: Server | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const output = vscode.window.createOutputChannel("Tilewright", { log: true });
  const trace = vscode.window.createOutputChannel("Tilewright Trace", { log: true });
  const status = new StatusBar("tilewright.showOutput");
  const proposals = new Proposals(output);
  const running = new Server(output, trace, status);
  server = running;

  const restart = (): void => {
    if (running.started) {
      void running.restart();
    }
  };

  const startFor = (document: vscode.TextDocument, part?: vscode.Range): void => {
    if (!running.started && document.languageId === "python" && importsTilewright.test(document.getText(part))) {
      void running.start();
      void onDidChangeInterpreter(() => void running.restartIfMoved()).then((listener) =>
        context.subscriptions.push(listener),
      );
    }
  };

  context.subscriptions.push(
    output,
    trace,
    status,
    proposals,
    registerKernelCommands(running, proposals, output),
    registerRunners(running),
    vscode.commands.registerCommand("tilewright.restartServer", () => running.restart()),
    vscode.commands.registerCommand("tilewright.showOutput", () => {
      output.show();
    }),
    vscode.commands.registerCommand("tilewright.openSettings", openSettings),
    vscode.commands.registerCommand("tilewright.applyProposal", () => proposals.apply()),
    vscode.commands.registerCommand("tilewright.discardProposal", () => proposals.discard()),
    vscode.workspace.onDidOpenTextDocument((document) => {
      startFor(document);
    }),
    vscode.workspace.onDidChangeTextDocument(({ document, contentChanges }) => {
      for (const { range, text } of contentChanges) {
        const line = range.start.line;
        startFor(document, new vscode.Range(line, 0, line + text.split("\n").length, 0)); // not all of a long file
      }
    }),
    vscode.workspace.onDidGrantWorkspaceTrust(restart),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("tilewright.server.command")) {
        restart();
      } else if (event.affectsConfiguration("tilewright")) {
        void running.sendSettings();
      }
    }),
  );
  for (const document of vscode.workspace.textDocuments) {
    startFor(document);
  }
}

/** In a remote window, settings that name a program belong to the remote machine and are shown only there. */
async function openSettings(): Promise<void> {
  const query = "@ext:tilewright.tilewright";
  if (vscode.env.remoteName === undefined) {
    await vscode.commands.executeCommand("workbench.action.openSettings", query);
  } else {
    await vscode.commands.executeCommand("workbench.action.openRemoteSettings", { query });
  }
}

export async function deactivate(): Promise<void> {
  await server?.stop();
}
