// Tab of a queue: the next messages, without leasing them.

import { get } from "./api.js";
import { dialog, doing } from "./dialog.js";
import { h } from "./dom.js";
import { ago, bytes, exact, iso, plain, time } from "./format.js";
import { cells, chooser } from "./parts.js";
import { pairsView, payloadView, preview } from "./payload.js";
import { enc } from "./api.js";
import { table } from "./table.js";

/** Show one message, or a record of a log, in a dialog; `more` are additional facts. */
export function showMessage(message, { whole, more = [], actions, kind = "Message" } = {}) {
  const times = message.enqueued_at ? [["Put", `${time(message.enqueued_at)}, ${ago(message.enqueued_at)}`]] : [];
  const about = [
    [kind === "Record" ? "Sequence" : "Id", plain(message.id)],
    ...times,
    ...more,
    ["Key", plain(message.key)],
    ["Priority", message.priority],
    ["Attempts", message.attempts],
  ].filter(([, value]) => value !== undefined && value !== null && value !== "–");
  const shown = dialog({
    title: `${kind} ${plain(message.id)}`,
    wide: true,
    body: h(
      "div.stack",
      h(
        "dl.facts",
        about.map(([label, value]) => [h("dt", label), h("dd", String(value))]),
      ),
      h("section", h("h3", "Headers"), pairsView(message.headers)),
      h("section.stack", h("h3", "Payload"), payloadView({ ...message, more: whole })),
      actions &&
        h(
          "div.actions",
          actions(() => shown.close()),
        ),
    ),
  });
  return shown;
}

/** Columns of a table of messages; `more` are placed before the payload. */
export function messageColumns(more = []) {
  return [
    {
      id: "id",
      label: "Id",
      main: true,
      cell: (row) => ({ mark: String(row.id), node: h("span.mono", plain(row.id)) }),
    },
    ...more,
    { id: "key", label: "Key", cell: (row) => plain(row.key) },
    {
      id: "payload",
      label: "Payload",
      wide: true,
      cell: (row) => ({ mark: preview(row.payload), node: h("span.preview", preview(row.payload)) }),
    },
    { id: "size", label: "Size", num: true, cell: (row) => ({ text: bytes(row.size), title: `${exact(row.size)} B` }) },
  ];
}

export function messagesTab({ at, view }) {
  return (body, signal) => {
    let many = 20;
    const list = table({
      label: "Next messages",
      key: (row) => row.id,
      open: (row) => showMessage(row, { whole: () => doing(null, () => get(at(`/messages/${enc(row.id)}`))) }),
      empty: "No messages are ready.",
      columns: messageColumns([
        {
          id: "put",
          label: "Put",
          num: true,
          cell: (row) => ({ text: ago(row.enqueued_at), title: iso(row.enqueued_at) }),
        },
        { id: "priority", label: "Priority", num: true, cell: (row) => cells.count(row.priority) },
        { id: "attempts", label: "Attempts", num: true, cell: (row) => cells.count(row.attempts) },
      ]),
    });
    const choose = chooser("Show next", ["20", "100", "500"], "20", (value) => {
      many = Number(value);
      polling.now();
    });
    body.append(
      h(
        "div.row",
        h("p.quiet.grow", "Peeking leases no messages and counts no attempts. Press Enter to open a message."),
        choose.element,
      ),
      h("div.panel.flush", list.element),
    );
    const polling = view.poll(
      async () => {
        const { messages } = await get(at("/messages"), { count: many, truncate: 4096 }, signal);
        list.update(messages);
      },
      { signal },
    );
  };
}
