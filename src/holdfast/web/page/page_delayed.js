// What comes up when, in all queues? One lane for each queue on one axis of time.

import { get, queuePath } from "./api.js";
import { h } from "./dom.js";
import { plural } from "./format.js";
import { cells, head, panel } from "./parts.js";
import { go, link } from "./router.js";
import { table } from "./table.js";
import { timeline } from "./timeline.js";

const LANES = 24;

export function page(view) {
  view.title("Delayed");
  const axis = timeline({ label: "Delayed messages of all queues" });
  const total = h("span.quiet");
  const list = table({
    label: "Queues with delayed messages",
    key: (row) => `${row.vhost}/${row.name}`,
    open: (row) => go("queues", row.vhost, row.name, { tab: "delayed" }),
    empty: "No message is delayed.",
    columns: [
      {
        id: "name",
        label: "Queue",
        main: true,
        cell: (row) => cells.link(row.name, "queues", row.vhost, row.name, { tab: "delayed" }),
      },
      { id: "total", label: "Delayed", num: true, cell: (row) => cells.count(row.total) },
      { id: "first", label: "First due", num: true, cell: (row) => cells.ago(row.first_due) },
      { id: "last", label: "Last due", num: true, cell: (row) => cells.ago(row.last_due) },
    ],
  });
  const drawing = panel("When they come up", total, axis.element);
  view.root.append(head("Delayed messages"), drawing, h("div.panel.flush", list.element));
  view.poll(
    async (signal) => {
      const { items } = await get("/queues", { sort: "delayed", sort_reverse: true, page_size: LANES }, signal);
      const waiting = items.filter((row) => row.delayed > 0);
      const found = await Promise.all(
        waiting.map(async (row) => ({
          vhost: row.vhost,
          name: row.name,
          ...(await get(queuePath(row.vhost, row.name, "/delayed"), { count: 1, buckets: 60 }, signal)),
        })),
      );
      const rows = found.filter((row) => row.total > 0);
      drawing.hidden = rows.length === 0;
      total.textContent = plural(
        rows.reduce((sum, row) => sum + row.total, 0),
        "message",
      );
      axis.update(
        rows.map((row) => ({
          label: row.name,
          href: link("queues", row.vhost, row.name, { tab: "delayed" }),
          buckets: row.buckets,
        })),
      );
      list.update(rows);
    },
    { every: 4000 },
  );
}
