// Which view is shown, whether the server is there, and the key.

import { ApiError, getJson, key } from "./api.js";
import { Playground } from "./chat.js";
import { $ } from "./dom.js";
import { Live } from "./live.js";
import { showModels } from "./settings.js";

const TITLES = { chat: "Playground", live: "Live" };
const AGAIN_MS = 2000;
let again = 0;

// Says what is wrong until something works; looks for the server meanwhile.
function showProblem(error) {
  const text = error.isAway ? "The server does not answer. Trying again…" : error.message;
  $("notice-text").textContent = text;
  $("notice-key").hidden = !error.wantsKey;
  $("notice").hidden = false;
}

function fine() {
  $("notice").hidden = true;
}

// The probe's words, while models load.
async function whyNone() {
  try {
    const { problems } = await (await fetch("/ping")).json();
    return problems.join("; ") || "No model is loaded yet";
  } catch {
    return "No model is loaded yet";
  }
}

async function lookForModels() {
  clearTimeout(again);
  try {
    const { data } = await getJson("/v1/models");
    showModels(data);
    if (data.length) return fine();
    showProblem(new ApiError(`${await whyNone()}. Looking again…`, 503));
  } catch (error) {
    showProblem(error);
    if (error.wantsKey) return undefined;
  }
  if (!document.hidden) again = setTimeout(lookForModels, AGAIN_MS);
  return undefined;
}

const live = new Live(fine, showProblem);
new Playground((error) => {
  if (error.isAway || error.wantsKey) showProblem(error);
  if (error.isAway) again = setTimeout(lookForModels, AGAIN_MS);
});

function route() {
  const view = location.hash === "#live" ? "live" : "chat";
  for (const name of Object.keys(TITLES)) {
    $(name).hidden = name !== view;
    if (name === view) $(`to-${name}`).setAttribute("aria-current", "page");
    else $(`to-${name}`).removeAttribute("aria-current");
  }
  document.title = `${TITLES[view]} · lmi-backend`;
  fine();
  clearTimeout(again);
  if (view === "chat") lookForModels();
  live.watch(view === "live" && !document.hidden);
}

addEventListener("hashchange", route);
document.addEventListener("visibilitychange", route);

function askForKey() {
  $("key").value = key.get();
  $("key-dialog").showModal();
}

$("key-button").addEventListener("click", askForKey);
$("notice-key").addEventListener("click", askForKey);
$("key-cancel").addEventListener("click", () => $("key-dialog").close());
$("key-form").addEventListener("submit", () => {
  key.set($("key").value.trim());
  route();
});

route();
