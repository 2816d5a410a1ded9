// What may the user do? The server says it, and buttons for what it would refuse cannot be pressed and say why.

import { get } from "./api.js";
import { h, renew } from "./dom.js";

const UNKNOWN = "What your user may do is not known yet.";
const AGAIN_MS = 20000;

/**
 * What the user may do in general (create, administrate, operate, ...), and to one resource: {resource, vhost, name}.
 *
 * guard(button, operation): the button, pressable only if the user may. lacks(operation): what is missing, or null.
 * refresh(signal): ask the server, in each poll; it is asked seldom. element: what is missing, in words.
 */
export function rights(about = {}) {
  const guarded = new Map();
  const element = h("div", { role: "status" });
  let answer = null;
  let asked = -Infinity;
  const lacks = (operation) => (answer ? (answer[operation] ?? null) : UNKNOWN);
  const apply = (button, operation) => {
    const missing = lacks(operation);
    button.disabled = missing !== null;
    button.title = missing ?? "";
  };
  function show() {
    for (const [button, operation] of guarded) apply(button, operation);
    const missing = [...new Set([...guarded.values()].map(lacks).filter(Boolean))];
    renew(element, missing, () =>
      missing.length ? h("p.notice", `${missing.join(" ")} What needs it cannot be pressed.`) : [],
    );
  }
  return {
    element,
    lacks,
    guard(button, operation) {
      guarded.set(button, operation);
      apply(button, operation);
      return button;
    },
    async refresh(signal) {
      if (performance.now() - asked < AGAIN_MS) return;
      answer = await get("/may", about, signal);
      asked = performance.now();
      show();
    },
  };
}

/** Attributes of a button in a row of a table, which is made anew when what is missing changes. */
export const forbidden = (missing) => ({ type: "button", disabled: Boolean(missing), title: missing ?? null });
