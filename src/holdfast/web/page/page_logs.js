// List of logs, with the lag of their tailers; paged and filtered by the server.

import { get } from "./api.js";
import { h } from "./dom.js";
import { badge, cells, filterBox, head } from "./parts.js";
import { go } from "./router.js";
import { pager, table } from "./table.js";

export function page(view) {
  view.title("Logs");
  const { query } = view;
  const change = (values) => {
    view.keep(values);
    polling.now();
  };
  const list = table({
    label: "Logs",
    key: (row) => row.name,
    open: (row) => go("logs", row.name),
    empty: "No matching logs.",
    columns: [
      {
        id: "name",
        label: "Log",
        main: true,
        cell: (row) => cells.hosted(row.vhost, row.label, "logs", row.name),
      },
      { id: "records", label: "Records", num: true, cell: (row) => cells.count(row.records) },
      { id: "bytes", label: "Size", num: true, cell: (row) => cells.bytes(row.bytes) },
      { id: "segments", label: "Segments", num: true, cell: (row) => cells.count(row.segments) },
      { id: "end", label: "End", num: true, cell: (row) => cells.count(row.end) },
      { id: "last", label: "Last record", num: true, cell: (row) => cells.ago(row.last_timestamp) },
      { id: "tailers", label: "Tailers", num: true, cell: (row) => cells.count((row.tailers ?? []).length) },
      {
        id: "lag",
        label: "Largest lag",
        num: true,
        cell: (row) =>
          row.tailers?.length ? cells.count(Math.max(...row.tailers.map((one) => Number(one.lag)))) : "–",
      },
      {
        id: "damage",
        label: "Health",
        cell: (row) => ({
          mark: String(row.damage),
          node: row.damage ? badge(`${row.damage} damaged`, "bad") : badge("intact", "ok"),
        }),
      },
    ],
  });
  const pages = pager((page) => change({ page }));
  const filter = filterBox("Filter by name", query.get("name"), (name) => change({ name, page: null }));
  view.root.append(
    head("Logs"),
    h("div.row", filter, h("span.grow"), pages.element),
    h("div.panel.flush", list.element),
  );
  const polling = view.poll(async (signal) => {
    const answer = await get("/logs", { page: query.get("page") ?? 1, name: query.get("name") }, signal);
    list.update(answer.items);
    pages.update(answer);
  });
}
