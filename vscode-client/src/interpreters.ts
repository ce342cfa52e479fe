/** Finds the command that starts the language server. */
import { execFile } from "node:child_process";
import * as path from "node:path";
import { promisify } from "node:util";
import * as vscode from "vscode";

const run = promisify(execFile);
const pythonExtensionId = "ms-python.python";

/** The part of the Python extension's public API that is used here. */
interface PythonExtension {
  readonly environments: {
    getActiveEnvironmentPath(resource?: vscode.Uri): { readonly path: string };
    resolveEnvironment(environment: {
      readonly path: string;
    }): Promise<{ readonly executable: { readonly uri?: vscode.Uri } } | undefined>;
    readonly onDidChangeActiveEnvironmentPath: vscode.Event<unknown>;
  };
}

export interface ServerCommand {
  readonly command: string;
  readonly args: readonly string[];
  /** Where the command came from, for the log. */
  readonly origin: string;
}

/** No command starts the server; `message` lists what was tried. */
export class ServerNotFound extends Error {}

/**
 * The command for the language server: the setting, else the first interpreter that has tilewright among the one of
 * the Python extension, `.venv` of the workspace folder, `python3` and `python`.
 *
 * In an untrusted workspace no interpreter that lies in the workspace is started, since it is somebody else's program.
 *
 * @throws ServerNotFound
 */
export async function findServerCommand(): Promise<ServerCommand> {
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri;
  const configured = configuredCommand(folder);
  if (configured !== undefined) {
    return configured;
  }
  const refused: string[] = [];
  for (const { python, origin } of await candidates(folder)) {
    const problem = await whyUnusable(python);
    if (problem === undefined) {
      // -P keeps the current folder off sys.path: a folder named tilewright_server in the workspace must not be run.
      return { command: python, args: ["-P", "-m", "tilewright_server", "serve"], origin };
    }
    refused.push(`${python} (${origin}): ${problem}`);
  }
  throw new ServerNotFound(refused.join("; "));
}

/** Calls `listener` when the interpreter chosen in the Python extension changes. */
export async function onDidChangeInterpreter(listener: () => void): Promise<vscode.Disposable> {
  const api = await pythonExtension();
  return api?.environments.onDidChangeActiveEnvironmentPath(listener) ?? new vscode.Disposable(() => undefined);
}

function configuredCommand(folder: vscode.Uri | undefined): ServerCommand | undefined {
  const value: unknown = vscode.workspace.getConfiguration("tilewright").get("server.command");
  if (!Array.isArray(value) || value.length === 0) {
    return undefined;
  }
  const words = value.map((word) => String(word).replaceAll("${workspaceFolder}", folder?.fsPath ?? ""));
  const [command, ...args] = words;
  return command ? { command, args, origin: "setting tilewright.server.command" } : undefined;
}

async function candidates(folder: vscode.Uri | undefined): Promise<{ python: string; origin: string }[]> {
  const found: { python: string; origin: string }[] = [];
  const active = await activeInterpreter(folder);
  if (active !== undefined) {
    found.push({ python: active, origin: "Python extension" });
  }
  const inVenv = process.platform === "win32" ? ["Scripts", "python.exe"] : ["bin", "python"];
  for (const each of vscode.workspace.workspaceFolders ?? []) {
    found.push({ python: path.join(each.uri.fsPath, ".venv", ...inVenv), origin: `.venv of folder ${each.name}` });
  }
  const allowed = vscode.workspace.isTrusted ? found : found.filter(({ python }) => !liesInWorkspace(python));
  return [...allowed, ...["python3", "python"].map((python) => ({ python, origin: "path" }))];
}

function liesInWorkspace(file: string): boolean {
  return vscode.workspace.getWorkspaceFolder(vscode.Uri.file(file)) !== undefined;
}

async function pythonExtension(): Promise<PythonExtension | undefined> {
  const extension = vscode.extensions.getExtension<PythonExtension>(pythonExtensionId);
  return extension?.activate();
}

async function activeInterpreter(folder: vscode.Uri | undefined): Promise<string | undefined> {
  try {
    const api = await pythonExtension();
    const environment = await api?.environments.resolveEnvironment(api.environments.getActiveEnvironmentPath(folder));
    return environment?.executable.uri?.fsPath;
  } catch {
    return undefined; // The Python extension failed to start; it tells the person itself.
  }
}

async function whyUnusable(python: string): Promise<string | undefined> {
  const probe =
    "import importlib.util as u, sys; sys.exit(0 if u.find_spec('tilewright_server') else 'tilewright is not installed')";
  try {
    await run(python, ["-P", "-c", probe], { timeout: 15_000, windowsHide: true });
    return undefined;
  } catch (error) {
    const { code, killed, stderr } = error as { code?: string | number; killed?: boolean; stderr?: string };
    if (code === "ENOENT") {
      return "not found";
    }
    if (killed) {
      return "did not answer within 15 s";
    }
    const output = stderr ?? "";
    return output.includes("Unknown option: -P")
      ? "older than Python 3.11"
      : (output.trim().split("\n").at(-1) ?? String(error));
  }
}
