// List of exchanges, and a dialog to declare one.

import { enc, rabbit } from "./api.js";
import { ask } from "./dialog.js";
import { h } from "./dom.js";
import { rate } from "./format.js";
import { fields } from "./form.js";
import { badge, cells, chooser, filterBox, head } from "./parts.js";
import { rights } from "./rights.js";
import { go } from "./router.js";
import { table } from "./table.js";

const TYPES = ["direct", "fanout", "topic", "headers", "x-delayed-message"];
/** The name of the default exchange in addresses; its real name is empty. */
export const DEFAULT = "amq.default";

async function declare(view, hosts) {
  const form = fields([
    { name: "name", label: "Name", required: true, autofocus: true },
    { name: "vhost", label: "Virtual host", kind: "choice", options: hosts.map((one) => one.name), value: "/" },
    { name: "type", label: "Type", kind: "choice", options: TYPES },
    { name: "durable", label: "Durable", kind: "check", value: true },
    { name: "auto_delete", label: "Auto-delete (with its last binding)", kind: "check" },
    { name: "internal", label: "Internal (no direct publishing)", kind: "check" },
    {
      name: "arguments",
      label: "Arguments",
      kind: "pairs",
      rows: 3,
      span: true,
      placeholder: "alternate-exchange: name",
      hint: "One argument per line, as name: value.",
    },
  ]);
  const done = await ask({
    title: "Declare an exchange",
    fields: form,
    yes: "Declare",
    work: async ({ name, vhost, ...rest }) => {
      await rabbit.put(`/exchanges/${enc(vhost)}/${enc(name)}`, { arguments: {}, ...rest });
      return { name, vhost };
    },
    said: ({ name }) => `Exchange ${name} declared.`,
  });
  if (done) go("exchanges", done.vhost, done.name);
}

export function page(view) {
  view.title("Exchanges");
  let rows = [];
  let hosts = [{ name: "/" }];
  const list = table({
    label: "Exchanges",
    key: (row) => `${row.vhost}/${row.name}`,
    open: (row) => go("exchanges", row.vhost, row.name || DEFAULT),
    empty: "No matching exchanges.",
    columns: [
      {
        id: "name",
        label: "Exchange",
        main: true,
        cell: (row) =>
          cells.hosted(row.vhost, row.name || "(default)", "exchanges", row.vhost, row.name || DEFAULT),
      },
      { id: "type", label: "Type", cell: (row) => row.type },
      {
        id: "features",
        label: "Features",
        cell: (row) => ({
          mark: `${row.durable}${row.auto_delete}${row.internal}`,
          node: [
            row.durable ? badge("durable", "plain") : badge("transient", "plain"),
            row.auto_delete ? badge("auto-delete", "plain") : "",
            row.internal ? badge("internal", "plain") : "",
          ],
        }),
      },
      { id: "in", label: "In", num: true, cell: (row) => rate(row.message_stats?.publish_in_details?.rate) },
      { id: "out", label: "Out", num: true, cell: (row) => rate(row.message_stats?.publish_out_details?.rate) },
    ],
  });
  const show = () => {
    const wanted = (view.query.get("name") ?? "").toLowerCase();
    const vhost = view.query.get("vhost");
    list.update(rows.filter((row) => row.name.toLowerCase().includes(wanted) && (!vhost || row.vhost === vhost)));
  };
  const filter = filterBox("Filter by name", view.query.get("name"), (name) => (view.keep({ name }), show()));
  const host = chooser(
    "Virtual host",
    [["", "all"]],
    view.query.get("vhost") ?? "",
    (vhost) => (view.keep({ vhost }), show()),
  );
  const may = rights();
  const make = may.guard(
    h("button.primary", { type: "button", onclick: () => declare(view, hosts) }, "Declare an exchange"),
    "create",
  );
  view.root.append(
    head(
      "Exchanges",
      h("a.button", { href: "#/graph" }, "Routing graph"),
      make,
    ),
    may.element,
    h("div.row", filter, host.element),
    h("div.panel.flush", list.element),
  );
  view.poll(async (signal) => {
    await may.refresh(signal);
    [rows, hosts] = await Promise.all([rabbit.get("/exchanges", signal), rabbit.get("/vhosts", signal)]);
    host.fill([["", "all"], ...hosts.map((one) => [one.name, one.name])], view.query.get("vhost") ?? "");
    show();
  });
}
