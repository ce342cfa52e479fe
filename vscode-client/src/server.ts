/** The life of the language server: found, started, restarted after a crash, stopped. */
import { homedir } from "node:os";
import type { Readable } from "node:stream";
import * as vscode from "vscode";
import {
  CloseAction,
  DidChangeConfigurationNotification,
  ErrorAction,
  type ErrorHandler,
  type ExecutableOptions,
  ExecuteCommandRequest,
  LanguageClient,
  type LanguageClientOptions,
  RevealOutputChannelOn,
  State,
  TransportKind,
  WorkDoneProgressCancelNotification,
} from "vscode-languageclient/node";
import { findServerCommand, type ServerCommand, ServerNotFound } from "./interpreters";
import { ProgressNotifications } from "./progress";
import {
  type InitializationOptions,
  type KernelReference,
  type ServerSettings,
  statusNotification,
  type StatusParams,
} from "./protocol";
import type { StatusBar } from "./status";

const restartsAllowed = 3;
const restartWindowMs = 3 * 60_000;

/** Runs at most one language server. Starts and stops wait for each other, so that they never overlap. */
export class Server implements vscode.Disposable {
  private client: LanguageClient | undefined;
  private queue: Promise<void> = Promise.resolve();
  private wanted = false;
  private readonly progress = new ProgressNotifications((token) => {
    void this.client?.sendNotification(WorkDoneProgressCancelNotification.type, { token });
  });
  private readonly didStart = new vscode.EventEmitter<void>();
  /** When the server is started for the first time, or again. */
  readonly onDidStart = this.didStart.event;
  /** Command line of the server that runs or was last tried. */
  private running: string | undefined;

  constructor(
    private readonly output: vscode.LogOutputChannel,
    private readonly trace: vscode.LogOutputChannel,
    private readonly status: StatusBar,
  ) {}

  /** Starts the server unless that was done before. */
  start(): Promise<void> {
    if (this.wanted) {
      return this.queue;
    }
    this.wanted = true;
    return this.enqueue(() => this.launch());
  }

  /** Stops the server if it runs and starts it with the settings of now. */
  restart(): Promise<void> {
    this.wanted = true;
    return this.enqueue(async () => {
      await this.shutDown();
      await this.launch();
    });
  }

  /** True once a start was asked for. */
  get started(): boolean {
    return this.wanted;
  }

  /** Starts the server anew if another command would be found now: the interpreter or a setting has changed. */
  async restartIfMoved(): Promise<void> {
    await this.queue;
    const found = await findServerCommand().catch(() => undefined);
    if (this.wanted && found !== undefined && commandLine(found) !== this.running) {
      await this.restart();
    }
  }

  stop(): Promise<void> {
    this.wanted = false;
    return this.enqueue(() => this.shutDown());
  }

  dispose(): void {
    void this.stop();
  }

  /** Tells the running server that settings have changed. */
  async sendSettings(): Promise<void> {
    await this.queue;
    if (this.client?.isRunning() === true) {
      await this.client.sendNotification(DidChangeConfigurationNotification.type, { settings: { tilewright: settings() } });
    }
  }

  /**
   * The result of a server command for a kernel; starts the server first when it is not running.
   *
   * @throws Error when there is no server, or the server's ResponseError
   */
  async execute<Result>(command: string, kernel: KernelReference, token?: vscode.CancellationToken): Promise<Result> {
    await this.start();
    if (this.client?.isRunning() !== true) {
      throw new Error("the language server is not running");
    }
    const params = { command, arguments: [kernel] };
    return (await this.client.sendRequest(ExecuteCommandRequest.type, params, token)) as Result;
  }

  private enqueue(task: () => Promise<void>): Promise<void> {
    this.queue = this.queue.then(task, task);
    return this.queue;
  }

  private async launch(): Promise<void> {
    this.status.setServer("starting");
    this.didStart.fire();
    let command: ServerCommand;
    try {
      command = await findServerCommand();
    } catch (error) {
      this.status.setServer("stopped");
      const tried = error instanceof ServerNotFound ? error.message : String(error);
      this.output.error(`No language server. Tried: ${tried}`);
      this.reportFailure(
        "Tilewright found no Python with tilewright installed. Install it (pip install tilewright) or set " +
          `tilewright.server.command. Tried: ${tried}`,
      );
      return;
    }
    this.running = commandLine(command);
    this.output.info(`Starting (${command.origin}): ${this.running}`);
    const stderr: string[] = [];
    const client = this.createClient(command, stderr);
    this.client = client;
    try {
      await client.start();
      this.status.setServer("running");
    } catch (error) {
      this.status.setServer("stopped");
      this.client = undefined;
      const reason = stderr.at(-1) ?? (error instanceof Error ? error.message : String(error));
      this.output.error(`The language server did not start: ${reason}`);
      this.reportFailure(
        `The Tilewright language server did not start with "${commandLine(command)}": ${reason}`,
      );
    }
  }

  private createClient(command: ServerCommand, stderr: string[]): LanguageClient {
    const initializationOptions: InitializationOptions = { ...settings(), workspaceTrusted: vscode.workspace.isTrusted };
    const options: LanguageClientOptions = {
      // Only documents a person can edit: the other side of a diff is not checked again.
      documentSelector: [
        { language: "python", scheme: "file" },
        { language: "python", scheme: "untitled" },
      ],
      outputChannel: this.output,
      revealOutputChannelOn: RevealOutputChannelOn.Never, // a hover that fails belongs in the log, not in a pop-up
      traceOutputChannel: this.trace,
      diagnosticCollectionName: "tilewright",
      initializationOptions,
      middleware: {
        handleWorkDoneProgress: (token, message, next) => {
          this.progress.handle(token, message, (passed) => {
            next(token, passed);
          });
        },
      },
      initializationFailedHandler: () => false,
      errorHandler: this.errorHandler(stderr),
      stdioOptions: {
        stdout: (stream) => {
          stream.resume();
        },
        // A Python server logs everything to stderr, so a line there is not an error by itself.
        stderr: (stream, channel) => {
          forEachLine(stream, (line) => {
            stderr.push(line);
            stderr.splice(0, stderr.length - 50);
            channel.info(line);
          });
        },
      },
    };
    const client = new QuietClient(
      "tilewright", // also the section of trace.server
      "Tilewright",
      { command: command.command, args: [...command.args], transport: TransportKind.stdio, options: workingFolder() },
      options,
    );
    client.onNotification(statusNotification, (params: StatusParams) => {
      this.status.update(params);
    });
    return client;
  }

  private errorHandler(stderr: readonly string[]): ErrorHandler {
    const crashes: number[] = [];
    let initialized = false;
    return {
      error: (_error, _message, count) => ({
        action: (count ?? 0) <= 3 ? ErrorAction.Continue : ErrorAction.Shutdown,
        handled: true,
      }),
      closed: () => {
        this.progress.clear();
        initialized ||= this.client?.initializeResult !== undefined;
        if (!initialized) {
          return { action: CloseAction.DoNotRestart, handled: true }; // launch() reports it
        }
        const now = Date.now();
        crashes.push(now);
        if (crashes.filter((time) => now - time < restartWindowMs).length <= restartsAllowed) {
          this.output.warn("The language server ended unexpectedly and is started again.");
          this.status.setServer("starting");
          this.watchRestart();
          return { action: CloseAction.Restart, handled: true };
        }
        this.status.setServer("stopped");
        this.reportFailure(
          `The Tilewright language server ended ${restartsAllowed + 1} times within 3 minutes and stays stopped. ` +
            `Its last words: ${stderr.at(-1) ?? "none"}`,
        );
        return { action: CloseAction.DoNotRestart, handled: true };
      },
    };
  }

  /** After a crash the client starts the server by itself; only its state says how that went. */
  private watchRestart(): void {
    const client = this.client;
    const listener = client?.onDidChangeState(({ newState }) => {
      if (newState === State.Running) {
        this.status.setServer("running");
        listener?.dispose();
      } else if (newState === State.StartFailed && client === this.client) {
        this.status.setServer("stopped");
        this.reportFailure("The Tilewright language server ended and could not be started again.");
        listener?.dispose();
      }
    });
  }

  private async shutDown(): Promise<void> {
    const client = this.client;
    this.client = undefined;
    this.progress.clear();
    this.status.setServer("idle");
    if (client === undefined) {
      return;
    }
    try {
      await client.dispose(2000);
    } catch (error) {
      this.output.warn(`Stopping the language server: ${String(error)}`); // it had died before
    }
  }

  private reportFailure(message: string): void {
    const actions = {
      "Open Settings": "tilewright.openSettings",
      "Show Output": "tilewright.showOutput",
      Retry: "tilewright.restartServer",
    };
    void vscode.window.showErrorMessage(message, ...Object.keys(actions)).then((choice) => {
      if (choice !== undefined) {
        void vscode.commands.executeCommand(actions[choice as keyof typeof actions]);
      }
    });
  }
}

function commandLine({ command, args }: ServerCommand): string {
  return [command, ...args].join(" ");
}

/** `python -m` imports from the current folder first, which must not be an untrusted one. */
function workingFolder(): ExecutableOptions {
  return vscode.workspace.isTrusted ? {} : { cwd: homedir() };
}

function settings(): ServerSettings {
  const configuration = vscode.workspace.getConfiguration("tilewright");
  return { target: configuration.get("target", ""), runner: configuration.get("runner", "local") };
}

/** Start failures are reported by Server, with what to do about them; the library's own pop-up would come on top. */
class QuietClient extends LanguageClient {
  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }
}

function forEachLine(stream: Readable, use: (line: string) => void): void {
  let rest = "";
  stream.setEncoding("utf8");
  stream.on("data", (chunk: string) => {
    const lines = (rest + chunk).split(/\r?\n/);
    rest = lines.pop() ?? "";
    lines.filter((line) => line.trim() !== "").forEach(use);
  });
  stream.on("end", () => {
    if (rest.trim() !== "") {
      use(rest);
    }
  });
}
