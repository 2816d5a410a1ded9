// About: the version of the server, and the checks of `holdfast doctor` with their advice.

import { get, post } from "./api.js";
import { ask, doing } from "./dialog.js";
import { h } from "./dom.js";
import { bytes, duration, plural, time } from "./format.js";
import { fields } from "./form.js";
import { cells, facts, head, panel } from "./parts.js";
import { rights } from "./rights.js";
import { table } from "./table.js";

export function page(view) {
  view.title("About");
  const about = facts();
  const verdict = h("p.notice", { role: "status" }, "Not checked yet.");
  const list = table({
    label: "Checks",
    key: (row) => row.name,
    empty: "No checks have run.",
    columns: [
      { id: "name", label: "Check", main: true, cell: (row) => row.name },
      { id: "state", label: "State", cell: (row) => cells.state(row.state) },
      { id: "found", label: "Result", wide: true, cell: (row) => row.found || "–" },
      { id: "advice", label: "Advice", wide: true, cell: (row) => row.advice || "–" },
    ],
  });
  const may = rights();
  const again = may.guard(h("button", { type: "button", onclick: check }, "Check again"), "administrate");
  const save = may.guard(h("button", { type: "button", onclick: backUp }, "Back up…"), "operate");
  view.root.append(
    head("About", save),
    may.element,
    panel(
      "This server",
      null,
      about.element,
      h(
        "p.row",
        h("a", { href: "api/openapi.json" }, "OpenAPI"),
        h("a", { href: "metrics" }, "Metrics"),
        h("a", { href: "health/ready" }, "Health"),
      ),
    ),
    verdict,
    h("section.panel.flush", h("header", h("h2", "Doctor"), again), list.element),
  );

  function backUp() {
    return ask({
      title: "Back up the store",
      text: "Writes a backup into a folder on the server's machine, while the server runs. Files that have not changed since the last backup in that folder are linked, not copied.",
      fields: fields([{ name: "to", label: "Folder (absolute path)", required: true, autofocus: true, span: true }]),
      yes: "Back up",
      work: ({ to }) => post("/backup", { to }),
      said: (report) => `Backup written to ${report.path}${report.bytes === undefined ? "" : `: ${bytes(report.bytes)}`}.`,
    });
  }

  async function check() {
    const answer = await doing(again, () => get("/doctor", null, view.signal));
    if (!answer) return;
    list.update(answer.checks);
    const bad = answer.checks.filter((one) => one.state === "bad").length;
    const warn = answer.checks.filter((one) => one.state === "warn").length;
    verdict.className = `notice ${bad ? "bad" : warn ? "warn" : "ok"}`;
    verdict.textContent =
      bad || warn
        ? `${bad ? `${plural(bad, "check")} failed. ` : ""}${warn ? `${plural(warn, "warning")}.` : ""}`
        : `All ${answer.checks.length} checks passed.`;
  }
  view.poll(
    async (signal) => {
      await may.refresh(signal);
      const now = await get("/overview", null, signal);
      about.update([
        ["Holdfast", now.version],
        ["Python", now.python],
        ["Node", now.node],
        ["Data", h("code", now.data)],
        ["Started", `${time(now.started_at)}, ${duration(Math.floor(now.uptime))} ago`],
      ]);
    },
    { every: 5000 },
  );
  may.refresh(view.signal).then(
    () => may.lacks("administrate") || check(),
    () => {},
  );
}
