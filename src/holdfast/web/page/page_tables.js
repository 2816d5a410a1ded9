// List of tables.

import { get } from "./api.js";
import { h } from "./dom.js";
import { badge, cells, filterBox, head } from "./parts.js";
import { go } from "./router.js";
import { table } from "./table.js";

/** The state of a table; for one that cannot be opened, the reason. */
function stateOf(row) {
  if (!row.error) return cells.state(row.state ?? "ok");
  return { mark: row.error, title: row.error, node: [badge("not open", "bad"), h("small.quiet", ` ${row.error}`)] };
}

export function page(view) {
  view.title("Tables");
  let rows = [];
  const list = table({
    label: "Tables",
    key: (row) => row.name,
    open: (row) => go("tables", row.name),
    empty: "No matching tables.",
    columns: [
      { id: "name", label: "Table", main: true, cell: (row) => cells.link(row.name, "tables", row.name) },
      { id: "state", label: "State", cell: stateOf },
      { id: "count", label: "Records", num: true, cell: (row) => cells.count(row.count) },
      { id: "deleted", label: "Deleted", num: true, cell: (row) => cells.count(row.deleted) },
      { id: "version", label: "Model version", num: true, cell: (row) => cells.count(row.version) },
      {
        id: "fields",
        label: "Fields",
        wide: true,
        cell: (row) => (row.fields ?? []).map((one) => one.name).join(", "),
      },
      { id: "indexes", label: "Indexes", num: true, cell: (row) => cells.count(row.indexes?.length) },
      {
        id: "history",
        label: "History",
        cell: (row) =>
          row.error
            ? "–"
            : {
                mark: String(row.keep_all_versions),
                node: row.keep_all_versions ? badge("all versions", "ok") : badge("latest only"),
              },
      },
    ],
  });
  const show = () => {
    const wanted = (view.query.get("name") ?? "").toLowerCase();
    list.update(rows.filter((row) => row.name.toLowerCase().includes(wanted)));
  };
  view.root.append(
    head("Tables", h("a.button", { href: "#/migrations" }, "Migrations")),
    h(
      "div.row",
      filterBox("Filter by name", view.query.get("name"), (name) => (view.keep({ name }), show())),
    ),
    h("div.panel.flush", list.element),
  );
  view.poll(async (signal) => {
    rows = (await get("/tables", null, signal)).tables;
    show();
  });
}
