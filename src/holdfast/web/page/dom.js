// DOM helpers: pages are built of elements and text, never of markup made from data, so that data cannot run as script.

const SVG = "http://www.w3.org/2000/svg";

/** An element: h("a.name#id", {href, onclick, ...}, ...children). Text is always text. */
export function h(what, given, ...children) {
  const [, tag, rest] = /^([a-z0-9]*)(.*)$/.exec(what);
  const element = document.createElement(tag || "div");
  fill(element, rest, given, children);
  return element;
}

/** The same for drawings. */
export function s(tag, given, ...children) {
  const [, name, rest] = /^([a-zA-Z]*)(.*)$/.exec(tag);
  const element = document.createElementNS(SVG, name);
  fill(element, rest, given, children);
  return element;
}

function fill(element, rest, given, children) {
  for (const part of rest.match(/[.#][^.#]+/g) ?? []) {
    if (part[0] === "#") element.id = part.slice(1);
    else element.classList.add(part.slice(1));
  }
  if (
    given !== null &&
    given !== undefined &&
    (typeof given !== "object" || given instanceof Node || Array.isArray(given))
  ) {
    children = [given, ...children];
    given = null;
  }
  for (const [name, value] of Object.entries(given ?? {})) set(element, name, value);
  append(element, children);
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "class")
    element.setAttribute("class", [element.getAttribute("class"), value].filter(Boolean).join(" "));
  else if (name === "style")
    Object.entries(value).forEach(([property, text]) => element.style.setProperty(property, text));
  else if (name === "value" && "value" in element) element.value = value;
  else if (name === "checked" || name === "indeterminate") element[name] = true;
  else element.setAttribute(name, value === true ? "" : value);
}

/** Add children: nodes, texts, numbers, and lists of them; null and false are left out. */
export function append(element, children) {
  for (const child of Array.isArray(children) ? children : [children]) {
    if (Array.isArray(child)) append(element, child);
    else if (child instanceof Node) element.append(child);
    else if (child !== null && child !== undefined && child !== false) element.append(String(child));
  }
  return element;
}

/** Replace all children. */
export function refill(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

/** Replace the content only if it changed, so that the selection and the focus stay where they are. */
export function renew(element, mark, make) {
  const text = typeof mark === "string" ? mark : stable(mark);
  if (element.dataset.mark === text) return element;
  element.dataset.mark = text;
  return refill(element, make());
}

function stable(value) {
  return JSON.stringify(value, (_, each) => (typeof each === "bigint" ? String(each) : each)) ?? "";
}

/** Announce a text to screen readers. */
export function announce(text) {
  document.getElementById("announce").textContent = text;
}

/** Show the result of an action for some seconds, and announce it to screen readers. */
export function toast(text, kind = "ok") {
  const word = { ok: "Done", bad: "Failed" }[kind];
  const close = h(
    "button.plain",
    { type: "button", "aria-label": "Close notice", onclick: () => box.remove() },
    "×",
  );
  const box = h(
    `div.toast.${kind}`,
    { role: kind === "bad" ? "alert" : null },
    h("strong", word),
    h("span", text),
    close,
  );
  // A modal dialog makes everything else inert: its notices must be inside of it.
  const dialogs = document.querySelectorAll("dialog[open]");
  (dialogs[dialogs.length - 1] ?? document.getElementById("toasts")).append(box);
  announce(text);
  setTimeout(() => box.remove(), kind === "bad" ? 12000 : 5000);
}

let counter = 0;
/** An id that no other element has. */
export function freshId(prefix = "id") {
  counter += 1;
  return `${prefix}-${counter}`;
}
