// Keyboard shortcuts: / filters, g and a key opens a page, j and k move, ? lists all of them.

import { dialog } from "./dialog.js";
import { h } from "./dom.js";
import { moveRow } from "./table.js";

/** The key after g, and the page that it opens. */
export const JUMPS = [
  ["o", "overview", "Overview"],
  ["q", "queues", "Queues"],
  ["d", "dead", "Dead letters"],
  ["y", "delayed", "Delayed"],
  ["e", "exchanges", "Exchanges"],
  ["r", "graph", "Routing graph"],
  ["c", "connections", "Connections"],
  ["l", "logs", "Logs"],
  ["t", "tables", "Tables"],
  ["m", "migrations", "Migrations"],
  ["p", "pipelines", "Pipelines"],
  ["u", "users", "Users and permissions"],
  ["a", "about", "About and doctor"],
];

const OTHERS = [
  [["/"], "Focus the filter"],
  [["j", "↓"], "Next row"],
  [["k", "↑"], "Previous row"],
  [["Enter"], "Open the row"],
  [["Space"], "Select the row, if rows can be selected"],
  [["←", "→"], "Move along a chart, a time axis or tabs"],
  [["Esc"], "Close a dialog; leave the filter"],
  [["?"], "Show these shortcuts"],
];

/** Show the shortcuts. */
export function showShortcuts() {
  if (document.querySelector("dialog[open]")) return;
  const row = (keys, text) =>
    h(
      "div",
      h(
        "dt",
        keys.map((key) => h("kbd", key)),
      ),
      h("dd", text),
    );
  dialog({
    title: "Keyboard shortcuts",
    wide: true,
    body: h(
      "div.shortcuts",
      h(
        "dl",
        OTHERS.map(([keys, text]) => row(keys, text)),
      ),
      h(
        "dl",
        JUMPS.map(([key, , text]) => row(["g", key], text)),
      ),
    ),
  });
}

function typing(target) {
  return target.closest?.("input:not([type=checkbox]):not([type=range]), textarea, select, [contenteditable]");
}

/** Listen to the keyboard. */
export function listen() {
  let jump = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.key === "Escape" && typing(event.target) && !event.target.closest("dialog")) {
      event.target.blur();
      event.preventDefault(); // the browser would empty the field without an event, and the list would stay filtered
    }
    if (typing(event.target) || document.querySelector("dialog[open]")) return;
    if (jump && Date.now() - jump < 1500) {
      jump = 0;
      const found = JUMPS.find(([key]) => key === event.key);
      if (found) {
        location.hash = `#/${found[1]}`;
        event.preventDefault();
        return;
      }
    }
    const inDrawing = event.target.closest?.("[data-arrows]");
    switch (event.key) {
      case "g":
        jump = Date.now();
        return;
      case "/": {
        const filter = document.querySelector("main [data-filter]");
        if (!filter) return;
        filter.focus();
        filter.select();
        break;
      }
      case "?":
        showShortcuts();
        break;
      case "j":
      case "ArrowDown":
        if (inDrawing || !moveRow(1)) return;
        break;
      case "k":
      case "ArrowUp":
        // If no row has the focus, the arrow keys scroll.
        if (inDrawing || !moveRow(-1)) return;
        break;
      default:
        return;
    }
    event.preventDefault();
  });
}
