// Who holds messages of this queue, and until when? They can be given back before their time.

import { del, enc, get } from "./api.js";
import { confirm } from "./dialog.js";
import { h } from "./dom.js";
import { count } from "./format.js";
import { cells } from "./parts.js";
import { forbidden } from "./rights.js";
import { table } from "./table.js";

export function leasesTab({ at, view, refresh, lacks }) {
  return (body, signal) => {
    const list = table({
      label: "Leases",
      key: (row) => row.lease,
      empty: "Nobody holds a message of this queue.",
      columns: [
        {
          id: "lease",
          label: "Lease",
          main: true,
          cell: (row) => ({ mark: String(row.lease), node: h("span.mono", String(row.lease)) }),
        },
        { id: "count", label: "Messages", num: true, cell: (row) => cells.count(row.count) },
        {
          id: "ids",
          label: "Ids",
          wide: true,
          cell: (row) => `${row.ids.slice(0, 12).join(", ")}${row.count > 12 ? " …" : ""}`,
        },
        { id: "since", label: "Since", num: true, cell: (row) => cells.ago(row.since_at) },
        {
          id: "expires",
          label: "Runs out",
          num: true,
          cell: (row) =>
            row.held_by === "consumer"
              ? { text: "held by a consumer", title: "It ends when the consumer settles its messages, or goes." }
              : cells.ago(row.expires_at),
        },
        {
          id: "do",
          label: "",
          cell: (row) => ({
            mark: String(row.lease),
            node: h(
              "button.small",
              { ...forbidden(lacks("configure")), onclick: () => giveBack(row) },
              "Give back…",
            ),
          }),
        },
      ],
    });
    async function giveBack(row) {
      await confirm({
        title: `Give back lease ${row.lease}`,
        text: `Its ${count(row.count)} messages can be delivered to others at once. Who holds them can no longer ack them.`,
        yes: "Give back",
        work: () => del(at(`/leases/${enc(row.lease)}`)),
        said: `Lease ${row.lease} is given back.`,
      });
      polling.now();
      refresh();
    }
    body.append(h("div.panel.flush", list.element));
    const polling = view.poll(async () => list.update((await get(at("/leases"), null, signal)).leases), { signal });
  };
}
