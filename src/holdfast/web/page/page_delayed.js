// Delayed messages of all queues: one lane for each queue on a common time axis.

import { get } from "./api.js";
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
    empty: "No delayed messages.",
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
  const drawing = panel("Due times", total, axis.element);
  view.root.append(head("Delayed messages"), drawing, h("div.panel.flush", list.element));
  view.poll(
    async (signal) => {
      const { total: messages, total_queues: all, queues } = await get("/delayed", { count: LANES, buckets: 60 }, signal);
      drawing.hidden = queues.length === 0;
      total.textContent =
        plural(messages, "message") +
        (all > queues.length ? `; ${queues.length} of ${all} queues are shown: those with the most` : "");
      axis.update(
        queues.map((row) => ({
          label: row.name,
          href: link("queues", row.vhost, row.name, { tab: "delayed" }),
          buckets: row.buckets,
        })),
      );
      list.update(queues);
    },
    { every: 4000 },
  );
}
