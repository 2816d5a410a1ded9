// Permissions of the user: buttons for operations that the server would reject are disabled, and say why.

import { get } from "./api.js";
import { h, renew } from "./dom.js";

const UNKNOWN = "Your permissions are being loaded.";
const AGAIN_MS = 20000;

/**
 * Permissions in general (create, administrate, operate, ...), and on one resource: {resource, vhost, name}.
 *
 * guard(button, operation): returns the button, enabled only if the user may. lacks(operation): what is missing, or null.
 * refresh(signal): call it in each poll; it asks the server seldom. element: a notice that says what is missing.
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
      missing.length ? h("p.notice", `${missing.join(" ")} Buttons that need it are disabled.`) : [],
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

/** Attributes of a button in a table row, which is rebuilt when the missing permission changes. */
export const forbidden = (missing) => ({ type: "button", disabled: Boolean(missing), title: missing ?? null });
