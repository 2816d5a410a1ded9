// Tab of a queue: its delayed messages, on a time axis and as a list.

import { enc, get } from "./api.js";
import { doing } from "./dialog.js";
import { h } from "./dom.js";
import { ago, iso, plural, time } from "./format.js";
import { messageColumns, showMessage } from "./queue_messages.js";
import { panel } from "./parts.js";
import { table } from "./table.js";
import { timeline } from "./timeline.js";

export function delayedTab({ at, view }) {
  return (body, signal) => {
    const axis = timeline({ label: "Delayed messages" });
    const total = h("span.quiet");
    const list = table({
      label: "Delayed messages",
      key: (row) => row.id,
      open: (row) =>
        showMessage(row, {
          more: [["Due", `${time(row.due_at)}, ${ago(row.due_at)}`]],
          whole: () => doing(null, () => get(at(`/messages/${enc(row.id)}`))),
        }),
      empty: "No delayed messages.",
      columns: messageColumns([
        { id: "due", label: "Due", num: true, cell: (row) => ({ text: ago(row.due_at), title: iso(row.due_at) }) },
      ]),
    });
    const drawing = panel("Due times", total, axis.element);
    body.append(drawing, h("div.panel.flush", list.element));
    view.poll(
      async () => {
        const answer = await get(at("/delayed"), { count: 200, buckets: 60 }, signal);
        drawing.hidden = answer.total === 0;
        total.textContent =
          answer.total > answer.messages.length
            ? `${plural(answer.total, "message")}, the first ${answer.messages.length} are listed`
            : plural(answer.total, "message");
        axis.update([{ buckets: answer.buckets }]);
        list.update(answer.messages);
      },
      { signal },
    );
  };
}
