// The playground: conversations, and texts that the model writes on.

import { key } from "./api.js";
import { asCurl, asPython } from "./code.js";
import { $, copy, say } from "./dom.js";
import { History } from "./history.js";
import { inWords, paced, Run } from "./run.js";
import { given, readForm } from "./settings.js";
import { chats, newChat } from "./store.js";
import { Answer, isUnanswered, Question } from "./thread.js";

const PATHS = { chat: "/v1/chat/completions", completion: "/v1/completions" };

export class Playground {
  #chat = newChat("chat");
  #run = null;
  #before = null;
  #answers = [];
  #edited = -1;
  #onError;

  constructor(onError) {
    this.#onError = onError;
    this.history = new History((chat) => this.open(chat ?? newChat(this.#chat.mode)));
    readForm();
    this.#listen();
    this.open(this.#chat);
  }

  #listen() {
    const prompt = $("prompt");
    $("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.#run) this.#run.stop();
      else if (this.#chat.mode === "chat") this.#send();
      else this.#write();
    });
    prompt.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!this.#run) this.#send();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
      if (!this.#run && this.#edited < 0) return;
      event.preventDefault();
      if (this.#run) this.#run.stop();
      else this.#leaveAsItWas();
    });
    $("text").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || this.#run) return;
      event.preventDefault();
      this.#write();
    });
    $("text").addEventListener("input", () => { this.#chat.text = $("text").value; });
    $("text").addEventListener("change", () => this.#save());
    $("undo").addEventListener("click", () => this.#undo());
    $("modes").addEventListener("change", (event) => this.open(newChat(event.target.value)));
    $("code-button").addEventListener("click", () => this.#showCode());
    $("code-close").addEventListener("click", () => $("code-dialog").close());
    for (const id of ["curl", "python"]) {
      $(`copy-${id}`).addEventListener("click", (event) => copy($(id).textContent, event.currentTarget));
    }
    addEventListener("pagehide", () => this.#run && this.#save());
    addEventListener("storage", () => this.#readAgain());
  }

  // Shows a conversation or a text; what runs in another is stopped.
  open(chat) {
    this.#run?.stop();
    this.#chat = chat;
    this.#before = null;
    this.#edited = -1;
    const isChat = chat.mode === "chat";
    for (const radio of $("modes").querySelectorAll("input")) radio.checked = radio.value === chat.mode;
    for (const id of ["scroll", "ask", "system-row"]) $(id).hidden = !isChat;
    for (const id of ["paper", "write"]) $(id).hidden = isChat;
    $("undo").disabled = true;
    $("text").value = chat.text;
    $("text-meter").textContent = chat.figures ? inWords(chat.figures) : "Ctrl Enter generates, Esc stops.";
    this.#draw();
    this.history.show(chat.id);
    if (matchMedia("(hover: hover)").matches) $(isChat ? "prompt" : "text").focus();
  }

  #draw() {
    this.#answers = [];
    $("thread").replaceChildren();
    this.#chat.messages.forEach((message, place) => this.#add(message, place));
    this.#offer();
    $("empty").hidden = this.#chat.messages.length > 0;
    $("scroll").scrollTop = $("scroll").scrollHeight;
  }

  #add(message, place) {
    if (message.role === "user") {
      const question = new Question(message, () => this.#edit(place)).element;
      question.classList.toggle("edited", place === this.#edited);
      $("thread").append(question);
      return null;
    }
    const answer = new Answer({ retry: () => this.#retry(), resume: () => this.#resume() });
    answer.show(message, false);
    this.#answers.push([answer, message]);
    $("thread").append(answer.element);
    return answer;
  }

  #offer() {
    this.#answers.forEach(([answer, message], index) => {
      answer.offer(message, index === this.#answers.length - 1);
    });
  }

  #send() {
    const content = $("prompt").value.trim();
    if (!content) return;
    $("prompt").value = "";
    if (this.#edited >= 0) this.#chat.messages.length = this.#edited;
    this.#edited = -1;
    this.#chat.messages.push({ role: "user", content });
    this.#answer();
  }

  #edit(place) {
    this.#run?.stop();
    $("prompt").value = this.#chat.messages[place].content;
    this.#edited = place;
    this.#draw();
    say("Send replaces this message and what follows. Esc leaves it.");
    $("prompt").focus();
  }

  #leaveAsItWas() {
    this.#edited = -1;
    $("prompt").value = "";
    this.#draw();
  }

  #retry() {
    this.#chat.messages.pop();
    this.#answer();
  }

  // Lets the model continue where its last answer was cut.
  #resume() {
    const message = this.#chat.messages.at(-1);
    const body = { ...this.#body("", true), add_generation_prompt: false, continue_final_message: true };
    this.#follow(message, this.#answers.at(-1)[0], body);
  }

  #answer() {
    const body = this.#body();
    const message = { role: "assistant", content: "" };
    this.#chat.messages.push(message);
    this.#draw();
    this.#follow(message, this.#answers.at(-1)[0], body);
  }

  #body(pending = "", isResumed = false) {
    const { system, ...rest } = given();
    const common = { model: $("model").value };
    if (this.#chat.mode !== "chat") {
      return { ...common, prompt: $("text").value, ...rest, ...STREAMED };
    }
    const answered = this.#chat.messages.filter((message, place, all) => message.content && !isUnanswered(all, place));
    const messages = answered.map(({ role, content }) => ({ role, content }));
    if (system) messages.unshift({ role: "system", content: system });
    if (pending) messages.push({ role: "user", content: pending });
    // An answer is no question: then it is what was asked for it.
    else if (messages.at(-1)?.role === "assistant" && !isResumed) messages.pop();
    return { ...common, messages, ...rest, ...STREAMED };
  }

  async #follow(message, answer, body) {
    const chat = this.#chat;
    const [content, reasoning] = [message.content, message.reasoning ?? ""];
    const scroll = $("scroll");
    delete message.error;
    const show = paced(() => {
      const isAtEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
      answer.show(message, this.#run === run);
      if (isAtEnd) scroll.scrollTop = scroll.scrollHeight;
    });
    const run = this.#start();
    answer.withhold();
    answer.show(message, true);
    const changed = () => {
      message.content = content + run.text;
      message.reasoning = reasoning + run.reasoning;
      message.figures = run.figures();
      show();
    };
    changed();
    const ticking = setInterval(changed, 1000);
    try {
      await run.ask(PATHS.chat, body, changed);
    } catch (error) {
      message.error = error.message;
      this.#onError(error);
    }
    clearInterval(ticking);
    this.#end(run);
    changed();
    if (this.#chat === chat) this.#offer();
    this.#save(chat);
  }

  async #write() {
    const area = $("text");
    if (!area.value) return;
    const chat = this.#chat;
    const body = this.#body();
    const before = area.value;
    const run = this.#start();
    area.readOnly = true;
    const show = paced(() => {
      if (this.#chat !== chat) return;
      const isAtEnd = area.scrollHeight - area.scrollTop - area.clientHeight < 60;
      area.value = chat.text;
      if (isAtEnd) area.scrollTop = area.scrollHeight;
      $("text-meter").textContent = chat.error ?? inWords(chat.figures);
    });
    const changed = () => {
      chat.text = before + run.text;
      chat.figures = run.figures();
      show();
    };
    delete chat.error;
    changed();
    try {
      await run.ask(PATHS.completion, body, changed);
    } catch (error) {
      chat.error = error.message;
      this.#onError(error);
    }
    area.readOnly = false;
    this.#end(run);
    changed();
    this.#before = before;
    $("undo").disabled = this.#chat !== chat;
    this.#save(chat);
  }

  #undo() {
    $("text").value = this.#chat.text = this.#before ?? this.#chat.text;
    $("undo").disabled = true;
    this.#save();
    $("text").focus();
  }

  #start() {
    this.#run = new Run();
    this.#showButtons();
    say("The model answers");
    return this.#run;
  }

  #end(run) {
    if (this.#run === run) this.#run = null;
    this.#showButtons();
    say(inWords(run.figures()));
  }

  #showButtons() {
    for (const [id, text] of [["send", "Send"], ["generate", "Generate"]]) {
      $(id).textContent = this.#run ? "Stop" : text;
      $(id).classList.toggle("stop", Boolean(this.#run));
    }
  }

  // Another tab has written on this conversation.
  #readAgain() {
    const stored = chats.get(this.#chat.id);
    const isNewer = stored && stored.updated > this.#chat.updated;
    if (isNewer && !this.#run && this.#edited < 0) this.open(stored);
  }

  #save(chat = this.#chat) {
    // What another tab wrote meanwhile stays; this becomes a conversation of its own.
    if ((chats.get(chat.id)?.updated ?? 0) > chat.updated) chat.id = newChat(chat.mode).id;
    if (chat.messages.length || chat.text) chats.save(chat);
    this.history.show(this.#chat.id);
  }

  #showCode() {
    const body = this.#body($("prompt").value.trim());
    const path = PATHS[this.#chat.mode];
    $("curl").textContent = asCurl(path, body, Boolean(key.get()));
    $("python").textContent = asPython(path, body, Boolean(key.get()));
    $("code-dialog").showModal();
  }
}

const STREAMED = {
  stream: true,
  stream_options: { include_usage: true, continuous_usage_stats: true },
};
