// Small parts that many pages share: headings, figures, facts, badges, tabs and choices.

import { h, refill, renew } from "./dom.js";
import { ago, bytes, count, exact, iso, rough, short, since } from "./format.js";
import { link } from "./router.js";

/** The head of a page: title and actions. */
export function head(title, ...actions) {
  return h("div.head", h("h1", title), actions);
}

/** A title with its parent: "Queues / orders", with the virtual host unless it is /. */
export function crumbs(page, text, name, vhost = "/") {
  const above = [h("a", { href: `#/${page}` }, text), vhost === "/" ? "" : ` / ${vhost}`, " / "];
  return [h("span.crumbs", above), h("span", { title: name }, short(name))];
}

/** A panel with a title. */
export function panel(title, tools, ...content) {
  return h("section.panel", { "aria-label": title }, h("header", h("h2", title), tools), content);
}

/** Figures at a glance: update([[label, text, title, kind]]). */
export function figures() {
  const element = h("dl.figures");
  return {
    element,
    update(list) {
      renew(element, list, () =>
        list.map(([label, text, title, kind]) =>
          h("div", h("dt", label), h(`dd${kind ? `.${kind}` : ""}`, { title: title ?? null }, text)),
        ),
      );
    },
  };
}

/** Facts: update([[label, content]]). */
export function facts() {
  const element = h("dl.facts");
  return {
    element,
    update(list) {
      const mark = JSON.stringify(
        list.map(([label, content]) => [label, content instanceof Node ? content.textContent : String(content)]),
      );
      renew(element, mark, () => list.map(([label, content]) => [h("dt", label), h("dd", content)]));
    },
  };
}

/** A word with a colour and a symbol: ok, warn, bad or neither. */
export function badge(text, kind = "") {
  return h(`span.badge${kind ? `.${kind}` : ""}`, text);
}

const STATES = {
  running: "ok",
  done: "ok",
  ok: "ok",
  idle: "",
  paused: "warn",
  paging: "warn",
  paged: "warn",
  waiting: "warn",
  warn: "warn",
  flow: "warn",
  blocked: "warn",
  cancelled: "warn",
  failed: "bad",
  gone: "bad",
  bad: "bad",
  closed: "bad",
  closing: "warn",
};
/** A state as a badge. */
export function stateBadge(state) {
  return badge(state ?? "unknown", STATES[state] ?? "");
}

/** Cells for tables, with the exact value in the title. */
export const cells = {
  count: (value) => ({ text: count(value), title: exact(value) }),
  bytes: (value) => ({ text: bytes(value), title: `${exact(value)} B` }),
  ago: (value) => ({ text: ago(value), title: iso(value) }),
  /** The same for narrow columns: in one unit only. */
  age: (value) => ({ text: value === null || value === undefined ? "–" : `${rough(since(value))} ago`, title: iso(value) }),
  state: (state) => ({ mark: String(state), node: stateBadge(state) }),
  link: (text, ...parts) => ({
    mark: `${text}|${parts.join("/")}`,
    node: h("a", { href: link(...parts), title: short(text) === text ? null : text }, short(text)),
  }),
  /** A link, followed by the virtual host unless it is /. */
  hosted: (vhost, text, ...parts) => ({
    mark: `${text}|${vhost}`,
    node: [cells.link(text, ...parts).node, vhost === "/" ? "" : h("span.quiet", ` ${vhost}`)],
  }),
};

/** A choice of a few: choice(label, [[value, label]], value, onChange). */
export function choice(label, options, value, onChange) {
  const buttons = options.map(([each, text]) =>
    h("button", { type: "button", "aria-pressed": String(each === value), onclick: () => choose(each) }, text),
  );
  function choose(next) {
    options.forEach(([each], at) => buttons[at].setAttribute("aria-pressed", String(each === next)));
    onChange(next);
  }
  return h("div.segmented", { role: "group", "aria-label": label }, buttons);
}

/** A filter field; calls `onChange` when typing pauses. */
export function filterBox(label, value, onChange) {
  let timer = 0;
  const input = h("input.filter", {
    type: "search",
    placeholder: `${label}  ( / )`,
    "aria-label": label,
    "data-filter": "",
    value: value ?? "",
    spellcheck: "false",
    autocomplete: "off",
    oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(() => onChange(input.value), 200);
    },
    onkeydown: (event) => {
      if (event.key === "Enter") {
        clearTimeout(timer);
        onChange(input.value);
      }
    },
  });
  return input;
}

/** A choice from a list, as a select with a label in front. */
export function chooser(label, options, value, onChange) {
  const select = h("select", { "aria-label": label, onchange: () => onChange(select.value) });
  const fill = (list, now) => {
    const given = list.map((one) => (Array.isArray(one) ? one : [one, one]));
    renew(select, [given, now], () =>
      given.map(([each, text]) => h("option", { value: each, selected: each === now }, text)),
    );
  };
  fill(options, value);
  return { element: h("label.row", h("span.quiet", label), select), fill, select };
}

/** Tabs: [{id, label, make(panel, signal)}]; a tab is built when it is chosen, and its signal aborts when it is left. */
export function tabs({ label, list, chosen, onChoose, signal }) {
  const body = h("div.stack", { role: "tabpanel", tabindex: "-1" });
  let leaving = null;
  const buttons = list.map((one) =>
    h(
      "button",
      { type: "button", role: "tab", id: `tab-${one.id}`, onclick: () => show(one.id), onkeydown: move },
      one.label,
      (one.count = h("span.n")),
    ),
  );
  function move(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const next = (buttons.indexOf(event.target) + step + buttons.length) % buttons.length;
    buttons[next].focus();
    show(list[next].id);
    event.preventDefault();
  }
  /** On a phone the line of tabs scrolls sideways: the chosen one must be visible. */
  function reveal() {
    const tab = buttons.find((one) => one.getAttribute("aria-selected") === "true");
    if (tab && line.scrollWidth > line.clientWidth)
      line.scrollLeft = tab.offsetLeft - line.clientWidth / 2 + tab.offsetWidth / 2;
  }
  function show(id) {
    leaving?.abort();
    leaving = new AbortController();
    signal.addEventListener("abort", () => leaving.abort());
    const one = list.find((each) => each.id === id) ?? list[0];
    list.forEach((each, at) => {
      buttons[at].setAttribute("aria-selected", String(each === one));
      buttons[at].tabIndex = each === one ? 0 : -1;
    });
    reveal();
    body.setAttribute("aria-labelledby", `tab-${one.id}`);
    refill(body);
    onChoose(one.id);
    one.make(body, leaving.signal);
  }
  const line = h("div.tabs", { role: "tablist", "aria-label": label, "data-arrows": "" }, buttons);
  return {
    element: h("div.stack", line, body),
    show,
    start: () => show(chosen ?? list[0].id),
    number(id, value) {
      const one = list.find((each) => each.id === id);
      const text = value ? ` ${count(value)}` : "";
      if (!one || one.count.textContent === text) return;
      one.count.textContent = text;
      reveal();
    },
  };
}
