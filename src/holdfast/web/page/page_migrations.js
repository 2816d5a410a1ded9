// Migrations of tables: their progress, and buttons to pause, resume and cancel them.

import { enc, get, post } from "./api.js";
import { confirm, doing } from "./dialog.js";
import { h } from "./dom.js";
import { ago, count, duration, iso, plain, since } from "./format.js";
import { cells, head } from "./parts.js";
import { forbidden, rights } from "./rights.js";
import { table } from "./table.js";

/** The progress as a fraction of 1; null if it is unknown. */
function part(row) {
  if (typeof row.progress === "number") return row.progress > 1 ? row.progress / 100 : row.progress;
  const { processed, total } = row.progress ?? row;
  return total ? Number(processed) / Number(total) : null;
}

/** The last event of a migration. */
function lastEvent(row) {
  const last = row.audit?.at(-1);
  if (!last) return "–";
  return `${ago(last.at)}: ${[last.phase, last.event, last.text].filter(Boolean).map(plain).join(", ")}`;
}

export function page(view) {
  view.title("Migrations");
  const may = rights();
  const act = async (event, row, what) => {
    if (what === "cancel") {
      await confirm({
        title: `Cancel the migration of ${row.table}`,
        text: "The migration stops. Records that were changed already stay changed.",
        yes: "Cancel migration",
        danger: true,
        work: () => post(`/migrations/${enc(row.table)}/cancel`),
        said: `Migration of ${row.table} cancelled.`,
      });
    } else
      await doing(
        event.target,
        () => post(`/migrations/${enc(row.table)}/${what}`),
        `Migration of ${row.table} ${what}d.`,
      );
    polling.now();
  };
  const button = (row, what, label, kind = "") =>
    h(
      `button.small${kind}`,
      { ...forbidden(may.lacks("administrate")), onclick: (event) => act(event, row, what) },
      label,
    );
  const list = table({
    label: "Migrations",
    key: (row) => row.table,
    empty: "No migrations.",
    columns: [
      { id: "table", label: "Table", main: true, cell: (row) => cells.link(row.table, "tables", row.table) },
      { id: "state", label: "State", cell: (row) => cells.state(row.state) },
      { id: "phase", label: "Phase", cell: (row) => plain(row.phase) },
      {
        id: "progress",
        label: "Progress",
        wide: true,
        cell: (row) => {
          const done = part(row);
          const { processed, total } = typeof row.progress === "object" && row.progress ? row.progress : row;
          const text =
            `${done === null ? "" : `${Math.floor(done * 100)} %`} ${processed === undefined || processed === null ? "" : `${count(processed)}${total ? ` of ${count(total)}` : ""} records`}`.trim();
          return {
            mark: `${done}|${text}`,
            node:
              row.state === "idle"
                ? "–"
                : [
                    done === null
                      ? ""
                      : h("progress", { max: 1, value: String(done), "aria-label": `Progress of ${row.table}` }),
                    text || "–",
                  ],
          };
        },
      },
      { id: "says", label: "Last event", wide: true, cell: (row) => ({ text: row.error || lastEvent(row) }) },
      {
        id: "started",
        label: "Started",
        num: true,
        cell: (row) => ({
          text: row.started ? ago(row.started) : "–",
          title: row.started ? `${iso(row.started)}, ${duration(since(row.started))}` : "",
        }),
      },
      {
        id: "do",
        label: "",
        cell: (row) => ({
          mark: `${row.state}|${may.lacks("administrate")}`,
          node: h(
            "div.row",
            ["running", "waiting"].includes(row.state) ? button(row, "pause", "Pause") : "",
            ["paused", "failed"].includes(row.state) ? button(row, "resume", "Resume") : "",
            ["running", "paused", "waiting", "failed"].includes(row.state)
              ? button(row, "cancel", "Cancel…", ".danger")
              : "",
          ),
        }),
      },
    ],
  });
  view.root.append(head("Migrations"), h("div.panel.flush", list.element));
  const polling = view.poll(async (signal) => {
    await may.refresh(signal);
    list.update((await get("/migrations", null, signal)).migrations);
  });
}
