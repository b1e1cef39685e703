// What is shown, from what the server tells and what is done here. Pure: what does not change stays the same
// object, and what is told twice is there once.

export const EMPTY = Object.freeze({
  first: null,
  items: [],
  waiting: [],
  runs: [], // those at work: a run that is stopped in the queue begins only to end
  ended: [],
  versions: [],
  returned: [],
  busy: null, // what goes on while nothing is seen to: "thinking", "working" or null
});

export function reduce(state, action) {
  const step = STEPS[action.type];
  if (!step) return state; // of a later version of the server
  const draft = { ...state, items: state.items.slice(), waiting: state.waiting.slice() };
  step(draft, action);
  return draft;
}

const STEPS = {
  load(draft, { view }) {
    settle(draft, view);
    const { waiting, returned } = draft;
    Object.assign(draft, EMPTY, { items: [], waiting, returned });
    for (const message of view.messages) addMessage(draft, message);
    if (view.activeRun) draft.runs = [view.activeRun.runId];
    if (view.activeRun?.state === "running") draft.busy = "thinking";
    if (!view.activeRun) {
      const open = new Set((view.pending ?? []).map(({ call }) => call.id));
      for (const tool of toolsOf(draft)) if (!open.has(tool.id)) close(draft, tool, "unfinished");
    }
    STEPS.pending(draft, view);
    for (const { runId, message } of view.waiting ?? []) STEPS.wait(draft, { message, runId });
    draft.versions = view.versions ?? [];
  },

  // What an edit or a retry took out, here or elsewhere, is shown no more. What came since the view stays.
  sync(draft, { view, settle: settled }) {
    if (settled) settle(draft, view);
    const there = new Set(view.messages.map(({ id }) => id));
    const users = draft.items.filter(({ kind }) => kind === "user");
    const known = users.findLastIndex(({ id }) => there.has(id));
    const gone = new Set(users.filter(({ id, replaced }, at) => !there.has(id) && (replaced || at < known)));
    let kept = true;
    draft.items = draft.items.filter((item) => (kept = item.kind === "user" ? !gone.has(item) : kept));
    draft.items = draft.items.map((item) => (item.replaced ? { ...item, replaced: false } : item));
    draft.first = draft.items.find(({ kind }) => kind === "user")?.id ?? null;
    draft.versions = view.versions ?? [];
    STEPS.pending(draft, view);
  },

  // What must be named in an answer to a call that waits is not part of the events.
  pending(draft, { pending = [] }) {
    const asked = new Map(pending.map((one) => [one.call.id, one]));
    for (const tool of toolsOf(draft).filter(isOpen)) {
      const ask = asked.get(tool.id);
      if (ask) put(draft, tool, { ask: tool.ask?.argsHash === ask.argsHash ? tool.ask : ask, state: "waiting" });
      else if (tool.ask) put(draft, tool, { ask: null, state: draft.runs.length ? "running" : tool.state });
    }
  },

  wait(draft, { message, runId = null, unsent = false, policy }) {
    if (find(draft, "user", message.id)) return;
    const at = draft.waiting.findIndex(({ id }) => id === message.id);
    const { id, content } = message;
    const held = { mine: !runId, policy, ...draft.waiting[at], id, content, runId, unsent };
    draft.waiting.splice(at < 0 ? Infinity : at, 1, held);
  },

  withdraw(draft, { id }) {
    const held = draft.waiting.find((one) => one.id === id);
    draft.waiting = draft.waiting.filter((one) => one !== held);
    if (held?.mine) draft.returned = [...draft.returned, held];
  },

  // From this message on, all is about to be said anew.
  replace(draft, { id }) {
    const from = id === null ? Infinity : draft.items.findIndex((item) => item.kind === "user" && item.id === id);
    draft.items = draft.items.map((item, at) =>
      Boolean(item.replaced) === at >= from ? item : { ...item, replaced: at >= from },
    );
  },

  run_start(draft, { runId }) {
    if (draft.ended.includes(runId) || draft.runs.includes(runId)) return;
    draft.runs = [...draft.runs, runId];
    if (draft.runs.length === 1) draft.busy = "thinking";
  },

  // What a step has taken in is told at its end, when the answer may stand there.
  user_message(draft, event) {
    const at = draft.items.findIndex(({ place }) => place === placeOf(event));
    addMessage(draft, event.message, at < 0 ? Infinity : at);
  },

  step_start(draft, { runId }) {
    if (draft.runs.includes(runId)) draft.busy = "thinking";
  },

  // What was shown of this step by an attempt that failed does not count.
  attempt(draft, event) {
    const place = placeOf(event);
    draft.items = draft.items.filter((item) => item.place !== place);
  },

  text_delta(draft, event) {
    if (draft.runs.includes(event.runId)) draft.busy = null;
    grow(draft, "text", event);
  },

  reasoning_delta(draft, event) {
    grow(draft, "reasoning", event);
  },

  tool_call_start(draft, event) {
    const tool = toolOf(draft, event.callId, event.name, placeOf(event));
    if (tool.args === null && tool.argsText) put(draft, tool, { argsText: "" });
  },

  tool_call_delta(draft, event) {
    const tool = find(draft, "tool", event.callId);
    if (tool && tool.args === null) put(draft, tool, { argsText: tool.argsText + event.text });
  },

  tool_call(draft, { call, at, runId }) {
    if (draft.runs.includes(runId)) draft.busy = "working";
    called(draft, call, at);
  },

  tool_progress(draft, { callId, fraction = null, text = "" }) {
    const tool = find(draft, "tool", callId);
    if (tool && isOpen(tool)) put(draft, tool, { progress: { fraction, text } });
  },

  tool_result(draft, { result, at }) {
    finish(draft, toolOf(draft, result.toolCallId, result.name), result.result ?? null, result.error ?? null, at);
  },

  step_end(draft, { result, runId, step }) {
    said(draft, result.assistantMessage);
    const place = placeOf({ runId, step });
    for (const item of draft.items) {
      if (item.kind === "reasoning" && item.place === place) put(draft, item, { place: null, whole: true });
    }
  },

  run_paused(draft, event) {
    endRun(draft, event);
  },

  run_end(draft, event) {
    endRun(draft, event);
  },
};

// What was sent from here and not heard of yet stays; what is over and not in the thread was replaced.
function settle(draft, { activeRun, waiting = [] }) {
  const open = [activeRun, ...waiting].map((run) => run?.runId);
  draft.waiting = draft.waiting.filter(({ runId }) => !runId || open.includes(runId));
}

function addMessage(draft, message, at = Infinity) {
  const { role, id, content, source, timestamp } = message;
  if (role === "assistant") return said(draft, message);
  if (role === "tool") {
    const tool = toolOf(draft, message.toolCallId, message.toolName);
    return finish(draft, tool, message.isError ? null : parsed(content), message.isError ? content : null, timestamp);
  }
  if (role !== "user" || find(draft, "user", id)) return undefined;
  draft.first ??= id;
  draft.waiting = draft.waiting.filter((one) => one.id !== id);
  draft.items.splice(at, 0, { kind: "user", id, content, source, at: timestamp ?? 0 });
  return undefined;
}

function said(draft, { id, content, toolCalls = [], stopReason = null, timestamp }) {
  const text = find(draft, "text", id);
  const whole = { text: content, whole: true, place: null, stopReason, at: timestamp ?? 0 };
  if (text) put(draft, text, whole);
  else if (content) draft.items.push({ kind: "text", id, length: 0, ...whole });
  for (const call of toolCalls) called(draft, call, timestamp, id);
}

// The server counts characters, and not halves of them.
function grow(draft, kind, event) {
  const characters = [...event.text];
  const offset = event.offset ?? 0;
  const item = find(draft, kind, event.messageId);
  const length = item?.length ?? 0;
  const fresh = characters.slice(Math.max(0, length - offset)).join("");
  if (!fresh || item?.whole) return;
  const grown = { text: (item?.text ?? "") + fresh, length: offset + characters.length };
  if (item) put(draft, item, grown);
  else draft.items.push({ kind, id: event.messageId, place: placeOf(event), whole: false, at: event.at ?? 0, ...grown });
}

function toolOf(draft, id, name, place = null) {
  const held = find(draft, "tool", id);
  if (held) return held;
  const nothing = { args: null, argsText: "", progress: null, result: null, error: null, ask: null };
  const made = { kind: "tool", id, name, place, state: "writing", messageId: null, startedAt: 0, endedAt: 0, ...nothing };
  draft.items.push(made);
  return made;
}

function called(draft, call, at = 0, messageId = null) {
  const tool = toolOf(draft, call.id, call.name);
  if (messageId) put(draft, tool, { messageId });
  return begun(draft, toolOf(draft, call.id, call.name), call, at);
}

function begun(draft, tool, call, at) {
  const state = tool.state === "writing" ? "running" : tool.state;
  put(draft, tool, { name: call.name, args: call.args ?? {}, argsText: "", place: null, state, startedAt: tool.startedAt || at });
}

function finish(draft, tool, result, error, at = 0) {
  if (!isOpen(tool)) return;
  const state = error === null ? "done" : (ENDS.find(([start]) => error.startsWith(start))?.[1] ?? "failed");
  put(draft, tool, { state, result, error, place: null, ask: null, progress: null, endedAt: at });
}

// How the server begins the error of a call that nobody allowed, or that was stopped.
const ENDS = [
  ["Not approved", "denied"],
  ["Cancelled:", "stopped"],
];

function close(draft, tool, state) {
  if (isOpen(tool)) put(draft, tool, { state, ask: null, progress: null, place: null });
}

function endRun(draft, { runId, result, at = 0 }) {
  const { finishReason, stopReason = null, errorMessage = "", errorCode = null, pending = [] } = result;
  draft.runs = draft.runs.filter((id) => id !== runId);
  for (const { id } of draft.waiting.filter((one) => one.runId === runId)) STEPS.withdraw(draft, { id });
  if (draft.runs.length || draft.ended.includes(runId)) return;
  draft.ended = [...draft.ended, runId];
  draft.busy = null;
  const open = new Set(pending.map(({ id }) => id));
  for (const tool of toolsOf(draft)) {
    if (open.has(tool.id)) isOpen(tool) && put(draft, tool, { state: "waiting" });
    else close(draft, tool, finishReason === "cancelled" ? "stopped" : "unfinished");
  }
  for (const item of draft.items) {
    if (item.whole === false) put(draft, item, { whole: true, place: null });
  }
  const cut = stopReason === "length" ? "length" : null;
  const reason = finishReason === "final" || finishReason === "stop" ? cut : finishReason;
  if (reason && reason !== "paused") {
    draft.items.push({ kind: "note", id: runId, reason, code: errorCode, text: errorMessage ?? "", at });
  }
}

export const isOpen = ({ state }) => state === "writing" || state === "running" || state === "waiting";

const toolsOf = (draft) => draft.items.filter(({ kind }) => kind === "tool");
const placeOf = ({ runId, step = 0 }) => `${runId} ${step}`;
const find = (draft, kind, id) => draft.items.findLast((item) => item.kind === kind && item.id === id);

function put(draft, item, change) {
  draft.items[draft.items.indexOf(item)] = Object.assign({ ...item }, change);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// Is it the conversation that is drawn here? One that was deleted begins anew.
export function continues(state, { messages }) {
  return state.first !== null && messages[0]?.id === state.first;
}

export function stoppable({ runs, waiting }) {
  return runs[0] ?? waiting.find(({ runId }) => runId)?.runId ?? null;
}

export function textOf(content) {
  return typeof content === "string" ? content : content.map((part) => part.text ?? "").join("\n");
}
