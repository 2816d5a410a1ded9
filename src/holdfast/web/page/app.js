// Application: shows the page of the address, starts it and stops it.

import { ApiError, session } from "./api.js";
import { h, refill } from "./dom.js";
import { listen } from "./keys.js";
import { poll } from "./poll.js";
import { match, parseHash } from "./router.js";
import { shell } from "./shell.js";

// Pages are loaded when they are first opened, so that the first page appears sooner.
const ROUTES = [
  ["overview", () => import("./page_overview.js")],
  ["queues", () => import("./page_queues.js")],
  ["queues/:vhost/:name", () => import("./page_queue.js")],
  ["dead", () => import("./page_dead.js")],
  ["delayed", () => import("./page_delayed.js")],
  ["exchanges", () => import("./page_exchanges.js")],
  ["exchanges/:vhost/:name", () => import("./page_exchange.js")],
  ["graph", () => import("./page_graph.js")],
  ["connections", () => import("./page_connections.js")],
  ["logs", () => import("./page_logs.js")],
  ["logs/:name", () => import("./page_log.js")],
  ["tables", () => import("./page_tables.js")],
  ["tables/:name", () => import("./page_table.js")],
  ["tables/:name/:key", () => import("./page_record.js")],
  ["migrations", () => import("./page_migrations.js")],
  ["pipelines", () => import("./page_pipelines.js")],
  ["users", () => import("./page_users.js")],
  ["about", () => import("./page_about.js")],
];

const app = document.getElementById("app");
const site = shell();
let leaving = null;
let wanted = "#/overview";

/** The view that a page gets: its root element, the parameters and query of the address, and polling. */
function viewOf(root, params, query, signal) {
  const error = h("div.notice.bad", { role: "alert", hidden: true });
  const body = h("div.page");
  refill(root, error, body);
  const show = (problem) => {
    error.hidden = !problem || problem.status === 0;
    error.textContent = problem ? problem.message : "";
  };
  return {
    root: body,
    params,
    query,
    signal,
    title(text) {
      document.title = `${text} · Holdfast`;
    },
    /** Call `work` now, and every two seconds. */
    poll(work, options = {}) {
      return poll(work, options.signal ?? signal, { onError: show, ...options });
    },
    /** Store the state of the page in the address, without loading the page again. */
    keep(changes) {
      for (const [name, value] of Object.entries(changes)) {
        if (value === null || value === undefined || value === "") query.delete(name);
        else query.set(name, value);
      }
      const search = query.toString();
      history.replaceState(null, "", `${location.hash.split("?")[0]}${search ? `?${search}` : ""}`);
    },
    fail: show,
  };
}

function closeDialogs() {
  document.querySelectorAll("dialog[open]").forEach((one) => one.close());
}

async function show() {
  if (location.hash === "#main") {
    // The skip link moves the focus; it does not open a page.
    site.main.focus();
    history.replaceState(null, "", wanted);
    return;
  }
  leaving?.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  closeDialogs();
  const { parts, query } = parseHash(location.hash || "#/overview");
  if (parts[0] === "login" || !session.token) {
    if (parts[0] !== "login") wanted = location.hash || "#/overview";
    site.banner.hidden = true;
    const { login } = await import("./page_login.js");
    if (!signal.aborted) login(app, () => back(), signal);
    return;
  }
  wanted = location.hash || "#/overview";
  if (!app.contains(site.frame)) refill(app, site.frame);
  site.show(parts[0] ?? "overview");
  const found = match(ROUTES, parts.length ? parts : ["overview"]);
  if (!found) {
    site.main.dataset.at = parts.join("/");
    refill(
      site.main,
      h(
        "div.page",
        h("h1", "Page not found"),
        h("p", "There is no page at this address. ", h("a", { href: "#/overview" }, "Go to the overview"), "."),
      ),
    );
    return;
  }
  const module = await found.page();
  if (signal.aborted) return;
  closeDialogs(); // the previous page could still be used until now
  const moved = site.main.dataset.at !== parts.join("/");
  site.main.dataset.at = parts.join("/");
  const view = viewOf(site.main, found.params, query, signal);
  try {
    module.page(view);
  } catch (problem) {
    if (!(problem instanceof ApiError)) console.error(problem);
    view.fail(problem);
  }
  if (moved) {
    scrollTo(0, 0);
    // Keyboard and screen reader users continue at the new content.
    site.main.focus({ preventScroll: true });
  }
}

function back() {
  if (location.hash === wanted) show();
  else location.hash = wanted.startsWith("#/login") ? "#/overview" : wanted;
}

window.addEventListener("hashchange", show);
window.addEventListener("holdfast-logged-out", show);
listen();
show();
