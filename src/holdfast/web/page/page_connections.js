// AMQP connections and channels; both can be closed.

import { del, enc, rabbit, session } from "./api.js";
import { ask } from "./dialog.js";
import { h } from "./dom.js";
import { bytes, plain, plural, rate } from "./format.js";
import { fields } from "./form.js";
import { badge, cells, filterBox, head } from "./parts.js";
import { forbidden, rights } from "./rights.js";
import { table } from "./table.js";

const client = (row) =>
  row.user_provided_name || row.client_properties?.connection_name || row.client_properties?.product || "–";

/** The name of a connection; its line may break before the arrow only. */
function ends(name) {
  const [from, to] = name.split(" -> ");
  return h("span.mono", h("span.nowrap", from), to === undefined ? "" : [" ", h("span.nowrap", `-> ${to}`)]);
}

export function page(view) {
  view.title("Connections");
  let rows = [];
  let open = [];
  const may = rights();
  /** The tag that is missing to close a connection or a channel; users may always close their own. */
  const keeps = (row) => (row.user === session.who?.name ? null : may.lacks("administrate"));
  const close = (row) =>
    ask({
      title: "Close connection",
      text: `${row.name}, user ${row.user}. The client receives the reason; most clients reconnect automatically.`,
      fields: fields([
        { name: "reason", label: "Reason", value: "Closed by an operator", span: true, autofocus: true },
      ]),
      yes: "Close connection",
      work: ({ reason }) =>
        rabbit.del(`/connections/${enc(row.name)}`, { "X-Reason": (reason ?? "").replace(/[^\x20-\x7e]/g, "?") }),
      said: `${row.name} closed.`,
    }).then(() => polling.now());
  const closeChannel = (row) =>
    ask({
      title: "Close channel",
      text: `${row.name}, user ${row.user}. The client receives the reason. Its other channels stay open; unsettled messages of this one are requeued.`,
      fields: fields([
        { name: "reason", label: "Reason", value: "Closed by an operator", span: true, autofocus: true },
      ]),
      yes: "Close channel",
      work: ({ reason }) => del(`/channels/${enc(row.name)}`, { reason }),
      said: `${row.name} closed.`,
    }).then(() => polling.now());
  const list = table({
    label: "Connections",
    key: (row) => row.name,
    empty: "No AMQP connections.",
    columns: [
      {
        id: "name",
        label: "Connection",
        main: true,
        cell: (row) => ({ mark: row.name, node: [ends(row.name), row.ssl ? [" ", badge("TLS", "plain")] : ""] }),
      },
      { id: "client", label: "Client", wide: true, cell: (row) => plain(client(row)) },
      { id: "user", label: "User", cell: (row) => row.user },
      { id: "vhost", label: "Vhost", cell: (row) => row.vhost },
      { id: "state", label: "State", cell: (row) => cells.state(row.state) },
      { id: "channels", label: "Channels", num: true, cell: (row) => cells.count(row.channels) },
      {
        id: "in",
        label: "Received",
        num: true,
        cell: (row) => ({ text: bytes(row.recv_oct), title: `${row.recv_oct} B` }),
      },
      {
        id: "out",
        label: "Sent",
        num: true,
        cell: (row) => ({ text: bytes(row.send_oct), title: `${row.send_oct} B` }),
      },
      {
        id: "since",
        label: "Since",
        num: true,
        cell: (row) => cells.age(row.connected_at ? row.connected_at * 1e6 : null),
      },
      {
        id: "do",
        label: "",
        cell: (row) => ({
          mark: `${row.name}|${keeps(row)}`,
          node: h("button.small.danger", { ...forbidden(keeps(row)), onclick: () => close(row) }, "Close…"),
        }),
      },
    ],
  });
  const channels = table({
    label: "Channels",
    key: (row) => row.name,
    empty: "No open channels.",
    columns: [
      { id: "name", label: "Channel", main: true, cell: (row) => ({ mark: row.name, node: ends(row.name) }) },
      { id: "state", label: "State", cell: (row) => cells.state(row.state) },
      {
        id: "mode",
        label: "Mode",
        cell: (row) => (row.transactional ? "transactions" : row.confirm ? "confirms" : "–"),
      },
      { id: "consumers", label: "Consumers", num: true, cell: (row) => cells.count(row.consumer_count) },
      { id: "prefetch", label: "Prefetch", num: true, cell: (row) => plain(row.prefetch_count) },
      { id: "unacked", label: "Unacked", num: true, cell: (row) => cells.count(row.messages_unacknowledged) },
      { id: "unconfirmed", label: "Unconfirmed", num: true, cell: (row) => cells.count(row.messages_unconfirmed) },
      { id: "publish", label: "Publish", num: true, cell: (row) => rate(row.message_stats?.publish_details?.rate) },
      { id: "deliver", label: "Deliver", num: true, cell: (row) => rate(row.message_stats?.deliver_get_details?.rate) },
      {
        id: "do",
        label: "",
        cell: (row) => ({
          mark: `${row.name}|${keeps(row)}`,
          node: h("button.small.danger", { ...forbidden(keeps(row)), onclick: () => closeChannel(row) }, "Close…"),
        }),
      },
    ],
  });
  const many = h("span.quiet");
  const show = () => {
    const wanted = (view.query.get("name") ?? "").toLowerCase();
    const fits = (...texts) =>
      texts.some((text) =>
        String(text ?? "")
          .toLowerCase()
          .includes(wanted),
      );
    list.update(rows.filter((row) => fits(row.name, row.user, row.vhost, client(row))));
    channels.update(open.filter((row) => fits(row.name, row.user, row.vhost)));
    many.textContent = `${plural(rows.length, "connection")}, ${plural(open.length, "channel")}`;
  };
  const filter = filterBox(
    "Filter by name, user or host",
    view.query.get("name"),
    (name) => (view.keep({ name }), show()),
  );
  view.root.append(
    head("Connections"),
    h("div.row", filter, many),
    h("div.panel.flush", list.element),
    h("section.panel.flush", h("header", h("h2", "Channels")), channels.element),
  );
  const polling = view.poll(async (signal) => {
    await may.refresh(signal);
    [rows, open] = await Promise.all([rabbit.get("/connections", signal), rabbit.get("/channels", signal)]);
    show();
  });
}
