// Tab of a queue: its leases, which can be revoked before they expire.

import { del, enc, get } from "./api.js";
import { confirm } from "./dialog.js";
import { h } from "./dom.js";
import { plural } from "./format.js";
import { cells } from "./parts.js";
import { forbidden } from "./rights.js";
import { table } from "./table.js";

export function leasesTab({ at, view, refresh, lacks }) {
  return (body, signal) => {
    const list = table({
      label: "Leases",
      key: (row) => row.lease,
      empty: "No messages of this queue are leased.",
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
          label: "Expires",
          num: true,
          cell: (row) =>
            row.held_by === "consumer"
              ? { text: "held by a consumer", title: "It ends when the consumer settles its messages or disconnects." }
              : cells.ago(row.expires_at),
        },
        {
          id: "do",
          label: "",
          cell: (row) => ({
            mark: String(row.lease),
            node: h(
              "button.small",
              { ...forbidden(lacks("configure")), onclick: () => revoke(row) },
              "Revoke lease…",
            ),
          }),
        },
      ],
    });
    async function revoke(row) {
      await confirm({
        title: `Revoke lease ${row.lease}`,
        text: `${plural(row.count, "message")} can be delivered to other consumers at once. The present holder can no longer acknowledge them.`,
        yes: "Revoke lease",
        work: () => del(at(`/leases/${enc(row.lease)}`)),
        said: `Lease ${row.lease} revoked.`,
      });
      polling.now();
      refresh();
    }
    body.append(h("div.panel.flush", list.element));
    const polling = view.poll(async () => list.update((await get(at("/leases"), null, signal)).leases), { signal });
  };
}
