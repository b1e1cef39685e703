// Types of `<playhead-panel>`. What each thing does is in docs/panel.md.

/** What is told with every message; more fields may be added. */
export type PanelContext = Record<string, unknown>;

/** Something that is added to the next message. */
export type PanelItem = string | { label: string; [more: string]: unknown };

export type PanelState = "idle" | "running" | "waiting";
export type PanelConnection = "connecting" | "live" | "back" | "lost" | "gone" | "refused";

export interface PanelStatus {
  thread: string | null;
  state: PanelState;
  connection: PanelConnection;
}

/** Of a `seek` event: milliseconds, and the media file where it is known. */
export interface SeekDetail {
  ms: number;
  end_ms?: number;
  asset_id?: string;
}

/** Of a `playhead-result` event: a tool ended, with a result or with an error. */
export interface ResultDetail {
  tool: string;
  callId: string;
  result: unknown;
  error: string | null;
}

export interface PlayheadPanelEventMap extends HTMLElementEventMap {
  seek: CustomEvent<SeekDetail>;
  "playhead-result": CustomEvent<ResultDetail>;
  "playhead-status": CustomEvent<PanelStatus>;
}

export declare class PlayheadPanel extends HTMLElement {
  /** Base URL of the API; by default the folder that the module came from. */
  server: string;
  get thread(): string | null;
  set thread(id: string);
  theme: "auto" | "light" | "dark";
  context: PanelContext | (() => PanelContext);
  clientTools: Record<string, (args: any) => unknown | Promise<unknown>>;
  fetch: (url: string, init?: RequestInit) => Promise<Response>;
  /** Texts by name, as in `panel/strings.json`; those that are not given stay. */
  strings: Record<string, unknown>;
  readonly status: PanelStatus;

  send(text: string): void;
  attach(item: PanelItem): void;
  stop(): Promise<void>;
  newThread(): void;
  export(format?: "markdown" | "json"): string;
  focus(): void;

  addEventListener<K extends keyof PlayheadPanelEventMap>(
    type: K,
    listener: (this: PlayheadPanel, event: PlayheadPanelEventMap[K]) => unknown,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject,
    options?: boolean | AddEventListenerOptions,
  ): void;
}

declare global {
  interface HTMLElementTagNameMap {
    "playhead-panel": PlayheadPanel;
  }
}
