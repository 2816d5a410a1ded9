// Payloads as text, formatted JSON or hex; always inserted as text, never as markup.

import { h, refill } from "./dom.js";
import { bytes, exact, isBytes, json, parse, plain } from "./format.js";

/** The bytes of a payload, which is a text or {base64}. */
export function bytesOf(payload) {
  if (!isBytes(payload)) return new TextEncoder().encode(typeof payload === "string" ? payload : json(payload ?? ""));
  return Uint8Array.from(atob(payload.base64), (character) => character.charCodeAt(0));
}

/** Rows of offset, 16 bytes in hex and as ASCII characters. */
export function hex(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.slice(at, at + 16)];
    const codes = row.map((one) => one.toString(16).padStart(2, "0")).join(" ");
    const ascii = row.map((one) => (one >= 32 && one < 127 ? String.fromCharCode(one) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${codes.padEnd(47)}  ${ascii}`);
  }
  return lines.join("\n");
}

function asJson(payload) {
  if (isBytes(payload) || typeof payload !== "string" || !/^\s*[[{"]/.test(payload)) return null;
  try {
    return json(parse(payload), 2);
  } catch {
    return null;
  }
}

/** The beginning of a payload, on one line. */
export function preview(payload, length = 160) {
  if (payload === null || payload === undefined) return "–";
  if (isBytes(payload))
    return `${[...bytesOf(payload).slice(0, 24)].map((one) => one.toString(16).padStart(2, "0")).join(" ")} …`;
  const text = plain(payload);
  return text.length > length ? `${text.slice(0, length)}…` : text || "(empty)";
}

/** A viewer with a choice of formats. `more()` loads the whole payload if it was truncated. */
export function payloadView({ payload, size, truncated, more }) {
  let shown = payload;
  let cut = truncated;
  const ordered = asJson(shown);
  let form = isBytes(shown) ? "hex" : ordered !== null ? "json" : "text";
  const pre = h("pre.payload", { tabindex: "0", "aria-label": "Payload" });
  const buttons = ["text", "json", "hex"].map((name) =>
    h(
      "button",
      { type: "button", "data-form": name, onclick: () => show(name) },
      { text: "Text", json: "JSON", hex: "Hex" }[name],
    ),
  );
  const rest = h("button.small", { type: "button", hidden: !cut || !more, onclick: whole }, "Show all");
  async function whole() {
    const message = await more();
    if (!message) return;
    shown = message.payload;
    cut = false;
    show(form);
  }
  function show(name) {
    form = name;
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.form === name));
    buttons[1].disabled = asJson(shown) === null;
    pre.classList.toggle("hex", name === "hex");
    const text =
      name === "hex"
        ? hex(bytesOf(shown))
        : name === "json"
          ? asJson(shown)
          : isBytes(shown)
            ? new TextDecoder().decode(bytesOf(shown))
            : plain(shown);
    refill(pre, text);
    rest.hidden = !cut || !more;
  }
  show(form);
  return h(
    "div.stack",
    h(
      "div.row",
      h("div.segmented", { role: "group", "aria-label": "Payload format" }, buttons),
      h("span.quiet", { title: exact(size) }, size === undefined ? "" : bytes(size), cut ? ", truncated" : ""),
      rest,
    ),
    pre,
  );
}

/** Headers and other pairs as a list. */
export function pairsView(pairs) {
  const list = Object.entries(pairs ?? {});
  if (!list.length) return h("p.quiet", "None.");
  return h(
    "dl.facts",
    list.map(([name, value]) => [h("dt", name), h("dd.mono", plain(value))]),
  );
}
