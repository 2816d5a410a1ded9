// What waits in this queue? A look at the next messages, without taking them.

import { get } from "./api.js";
import { dialog, doing } from "./dialog.js";
import { h } from "./dom.js";
import { ago, bytes, exact, iso, plain, time } from "./format.js";
import { cells, chooser } from "./parts.js";
import { pairsView, payloadView, preview } from "./payload.js";
import { enc } from "./api.js";
import { table } from "./table.js";

/** One message in a dialog: `more` are facts that belong to where it was seen. */
export function showMessage(message, { whole, more = [], actions } = {}) {
  const times = message.enqueued_at ? [["Put", `${time(message.enqueued_at)}, ${ago(message.enqueued_at)}`]] : [];
  const about = [
    ["Id", plain(message.id)],
    ...times,
    ...more,
    ["Key", plain(message.key)],
    ["Priority", message.priority],
    ["Attempts", message.attempts],
  ].filter(([, value]) => value !== undefined && value !== null && value !== "–");
  const shown = dialog({
    title: `Message ${plain(message.id)}`,
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

/** Columns of messages, with more before the payload. */
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
      label: "The next messages",
      key: (row) => row.id,
      open: (row) => showMessage(row, { whole: () => doing(null, () => get(at(`/messages/${enc(row.id)}`))) }),
      empty: "No message waits to be delivered.",
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
    const choose = chooser("Show the next", ["20", "100", "500"], "20", (value) => {
      many = Number(value);
      polling.now();
    });
    body.append(
      h(
        "div.row",
        h("p.quiet.grow", "A look without taking: nothing is leased, no attempt counts. Enter opens a message."),
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
