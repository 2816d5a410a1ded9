// Dialogs: they keep the focus, close with Esc, and restore the focus afterwards.

import { freshId, h, toast } from "./dom.js";

/** A dialog; `done` resolves when it has closed, with what `close(value)` was given (undefined for Esc). */
export function dialog({ title, body, wide = false }) {
  const id = freshId("dialog");
  let settle;
  const done = new Promise((resolve) => (settle = resolve));
  const cross = h("button.plain.close", { type: "button", "aria-label": "Close", onclick: () => close() }, "×");
  const box = h(
    `dialog${wide ? ".wide" : ""}`,
    { "aria-labelledby": id },
    h("header", h("h2", { id }, title), cross),
    h("div.body", body),
  );
  let value;
  function close(given) {
    value = given;
    box.close();
  }
  box.addEventListener("close", () => {
    // Its notices must stay visible.
    document.getElementById("toasts").append(...box.querySelectorAll(".toast"));
    box.remove();
    settle(value);
  });
  // A click outside closes it, as Esc does; but not one that began inside (to select text).
  let outside = false;
  box.addEventListener("pointerdown", (event) => (outside = event.target === box));
  box.addEventListener("click", (event) => {
    if (outside && event.target === box) close();
  });
  document.body.append(box);
  box.showModal();
  const first = box.querySelector("[autofocus], .body input, .body select, .body textarea, .body button");
  (first ?? cross).focus();
  return { box, close, done };
}

/** Run the action of a button, which is marked as busy meanwhile; report its result or error as a notice. */
export async function doing(button, work, said) {
  if (button) {
    if (button.getAttribute("aria-busy") === "true") return undefined;
    button.setAttribute("aria-busy", "true");
  }
  try {
    const answer = await work();
    const text = typeof said === "function" ? said(answer) : said;
    if (text) toast(text);
    return answer ?? true;
  } catch (error) {
    if (error.name !== "AbortError") toast(error.message, "bad");
    return undefined;
  } finally {
    button?.removeAttribute("aria-busy");
  }
}

/**
 * Ask for a confirmation. With `typed`, this text must be typed first; with `when`, a checkbox, only while it is checked.
 * `work` runs before the dialog closes. Resolves to its result.
 */
export function confirm({ title, text, details, yes, typed, when, danger = false, work, said }) {
  const button = h(`button.${danger ? "danger" : "primary"}`, { type: "submit" }, yes);
  const input =
    typed === undefined
      ? null
      : h("input", {
          type: "text",
          autocomplete: "off",
          spellcheck: "false",
          autofocus: !when,
          "aria-label": `Type ${typed} to confirm`,
          oninput: () => update(),
        });
  const asked = input && h("label.field", h("span", "Type ", h("code", typed), " to confirm"), input);
  function update() {
    const needed = input !== null && (!when || when.checked);
    if (asked) asked.hidden = !needed;
    button.disabled = needed && input.value !== typed;
  }
  when?.addEventListener("change", update);
  update();
  const form = h(
    "form.stack",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        if (button.disabled) return;
        const answer = await doing(button, work, said);
        if (answer !== undefined) shown.close(answer);
      },
    },
    text && h("p", text),
    details,
    asked,
    h("div.actions", h("button", { type: "button", onclick: () => shown.close() }, "Cancel"), button),
  );
  const shown = dialog({ title, body: form });
  if (!input || when) button.focus();
  return shown.done;
}

/** A form in a dialog; `work(values)` runs before it closes. Resolves to its result. */
export function ask({ title, fields, yes, work, said, text, wide }) {
  const button = h("button.primary", { type: "submit" }, yes);
  const form = h(
    "form.stack",
    {
      novalidate: true,
      onsubmit: async (event) => {
        event.preventDefault();
        const values = fields.read();
        if (values === null) return;
        const answer = await doing(button, () => work(values), said);
        if (answer !== undefined) shown.close(answer);
      },
    },
    text && h("p.quiet", text),
    fields.element,
    h("div.actions", h("button", { type: "button", onclick: () => shown.close() }, "Cancel"), button),
  );
  const shown = dialog({ title, body: form, wide });
  return shown.done;
}
