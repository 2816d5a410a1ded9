// Frame of every page: the navigation, the offline banner, the colour scheme, and the current user.

import { post, session } from "./api.js";
import { h, refill } from "./dom.js";
import { icon, mark } from "./icons.js";
import { showShortcuts } from "./keys.js";

const GROUPS = [
  ["", [["overview", "Overview"]]],
  [
    "Messages",
    [
      ["queues", "Queues"],
      ["dead", "Dead letters"],
      ["delayed", "Delayed"],
    ],
  ],
  [
    "Broker",
    [
      ["exchanges", "Exchanges"],
      ["graph", "Routing graph"],
      ["connections", "Connections"],
    ],
  ],
  [
    "Data",
    [
      ["logs", "Logs"],
      ["tables", "Tables"],
      ["migrations", "Migrations"],
      ["pipelines", "Pipelines"],
    ],
  ],
  [
    "Administration",
    [
      ["users", "Users"],
      ["about", "About"],
    ],
  ],
];

function dark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function toggleTheme() {
  const next = dark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("holdfast-theme", next);
  } catch {
    // Without storage the choice lasts until the page is loaded again.
  }
  showTheme();
}

function showTheme() {
  for (const button of document.querySelectorAll("[data-theme-button]")) {
    button.setAttribute("aria-pressed", String(dark()));
  }
}

export function themeButton() {
  const button = h(
    "button.plain.tool",
    {
      type: "button",
      "data-theme-button": "",
      title: "Light or dark mode",
      "aria-label": "Dark mode",
      onclick: toggleTheme,
    },
    icon("theme"),
  );
  button.setAttribute("aria-pressed", String(dark()));
  return button;
}

async function logOut() {
  try {
    await post("/logout");
  } catch {
    // The token may have expired already; this tab must forget it in any case.
  }
  session.forget();
  location.hash = "#/login";
}

/** Build the frame; return the element for pages, and a function that marks the current page. */
export function shell() {
  const links = new Map();
  const nav = h("nav.side", { "aria-label": "Pages" });
  for (const [label, list] of GROUPS) {
    const items = list.map(([name, text]) => {
      const item = h("a", { href: `#/${name}` }, icon(name), h("span", text));
      links.set(name, item);
      return h("li", item);
    });
    nav.append(
      label ? h("p.group", { "aria-hidden": "true" }, label) : "",
      h("ul", { "aria-label": label || null }, items),
    );
  }
  const who = h("span.who");
  const tools = h(
    "div.tools",
    who,
    h(
      "button.plain.tool",
      { type: "button", title: "Keyboard shortcuts (?)", "aria-label": "Keyboard shortcuts", onclick: showShortcuts },
      icon("keys"),
    ),
    themeButton(),
    h("button.plain.tool", { type: "button", title: "Log out", "aria-label": "Log out", onclick: logOut }, icon("out")),
  );
  const banner = h("div.banner", { role: "alert", hidden: true });
  const main = h("main#main", { tabindex: "-1" });
  const side = h(
    "aside",
    h("a.brand", { href: "#/overview", "aria-label": "Holdfast, overview" }, mark(), h("strong", "Holdfast")),
    nav,
    tools,
  );
  const frame = h("div.frame", side, h("div.column", banner, main));
  window.addEventListener("holdfast-reach", (event) => {
    banner.hidden = event.detail === 0;
    banner.textContent = event.detail ? "Offline: the server cannot be reached. Retrying…" : "";
  });
  return {
    frame,
    main,
    banner,
    show(name) {
      const signed = session.who;
      refill(who, signed ? [h("b", signed.name), h("small", (signed.tags ?? []).join(", "))] : "");
      for (const [page, item] of links) {
        if (page === name) {
          item.setAttribute("aria-current", "page");
          // On a phone the navigation is a bar that scrolls sideways: the current page must be visible.
          if (nav.scrollWidth > nav.clientWidth)
            nav.scrollLeft = item.offsetLeft - nav.clientWidth / 2 + item.offsetWidth / 2;
        } else item.removeAttribute("aria-current");
      }
    },
  };
}
