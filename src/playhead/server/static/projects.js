// The projects: which one is open, and what can be done with it.

import { Connection } from "../panel/connection.js";
import { element } from "../panel/dom.js";
import { ask } from "./dialog.js";
import { api, state, tell } from "./state.js";

const get = (id) => document.getElementById(id);
const PROJECT = "playhead.project";
const THREAD = "playhead.project.thread"; // not that of a panel by itself
const FIRST = "first"; // always there, with a conversation of the same name until another is begun

let loaded;
export const ready = new Promise((resolve) => (loaded = resolve));

export const currentProject = () => state.project?.id ?? localStorage.getItem(PROJECT) ?? FIRST;

export const projectUrl = (id, what = "") => `api/projects/${encodeURIComponent(id)}${what}`;

// The conversation of the project that is open, known before the server was asked.
export function currentThread() {
  if (!localStorage.getItem(THREAD)) localStorage.setItem(THREAD, currentProject());
  return localStorage.getItem(THREAD);
}

export async function keepThread(threadId) {
  localStorage.setItem(THREAD, threadId);
  await api("PATCH", projectUrl(currentProject()), { threadId });
}

// Another project has other media and another conversation: the page begins anew with it.
function open({ id, threadId }) {
  localStorage.setItem(PROJECT, id);
  localStorage.setItem(THREAD, threadId);
  location.reload();
}

export async function loadProjects() {
  const line = new Connection(fetch);
  state.projects = (await line.untilDone(() => api("GET", "api/projects"), () => {})).items;
  line.close();
  const wanted = currentProject();
  state.project = state.projects.find(({ id }) => id === wanted) ?? state.projects[0];
  if (state.project.id !== wanted || state.project.threadId !== currentThread()) return open(state.project);
  draw();
  await loadAssets();
  loaded();
}

export async function loadAssets() {
  state.assets = (await api("GET", projectUrl(state.project.id))).media;
  tell("assets");
}

export const addSample = () => api("POST", projectUrl(state.project.id, "/sample"));
export const takeOut = (id) => api("DELETE", projectUrl(state.project.id, `/media/${encodeURIComponent(id)}`));

function draw() {
  get("project").textContent = state.project.name;
  get("project").ariaLabel = `Project: ${state.project.name}`;
  get("project-delete").disabled = state.project.id === FIRST;
  get("project-list").replaceChildren(
    ...state.projects.map((project) => {
      const button = element("button", { type: "button", onclick: () => open(project) }, project.name);
      if (project.id === state.project.id) button.setAttribute("aria-current", "true");
      return element("li", {}, button);
    }),
  );
}

export function setUpProjects() {
  const menu = (id, work) =>
    get(id).addEventListener("click", async () => {
      get("project-menu").hidePopover();
      await ready;
      ask(work(state.project));
    });
  menu("project-new", () => ({
    title: "New project",
    yes: "Create",
    name: "",
    act: async (name) => open(await api("POST", "api/projects", { name })),
  }));
  menu("project-rename", ({ id, name: former }) => ({
    title: "Rename the project",
    yes: "Rename",
    name: former,
    act: async (name) => {
      Object.assign(state.project, await api("PATCH", projectUrl(id), { name }));
      draw();
    },
  }));
  menu("project-delete", ({ id, name }) => ({
    title: `Delete “${name}”?`,
    text: "Its conversation goes too, and every file that is in no other project.",
    yes: "Delete",
    act: async () => {
      await api("DELETE", projectUrl(id));
      open(state.projects[0]);
    },
  }));
}
