// Tabs of a queue: its bindings and its consumers.

import { get, path, rabbit } from "./api.js";
import { h } from "./dom.js";
import { plain } from "./format.js";
import { bindDialog, unbind } from "./binding.js";
import { cells } from "./parts.js";
import { forbidden } from "./rights.js";
import { table } from "./table.js";

export function bindingsTab({ vhost, name, at, row, view, refresh, lacks }) {
  return (body, signal) => {
    const list = table({
      label: "Bindings",
      key: (one) => `${one.source}|${one.routing_key}|${one.properties_key}`,
      empty: "No bindings: this queue is not declared in the broker, so exchanges cannot route to it.",
      columns: [
        {
          id: "source",
          label: "Exchange",
          main: true,
          cell: (one) =>
            one.source
              ? cells.link(one.source, "exchanges", vhost, one.source)
              : { mark: "", node: h("span.quiet", "(the default exchange)") },
        },
        {
          id: "key",
          label: "Routing key",
          wide: true,
          cell: (one) => ({ mark: one.routing_key, node: h("code", one.routing_key || "(empty)") }),
        },
        {
          id: "arguments",
          label: "Arguments",
          wide: true,
          cell: (one) => (Object.keys(one.arguments ?? {}).length ? plain(one.arguments) : "–"),
        },
        {
          id: "do",
          label: "",
          cell: (one) => ({
            mark: `${one.source}|${one.properties_key}|${lacks("write")}`,
            node: one.source
              ? h(
                  "button.small.danger",
                  {
                    ...forbidden(lacks("write")),
                    onclick: () =>
                      unbind(
                        { vhost, ...one, destination: name, destination_type: "queue" },
                        () => (polling.now(), refresh()),
                      ),
                  },
                  "Unbind…",
                )
              : "",
          }),
        },
      ],
    });
    const add = h(
      "button",
      {
        ...forbidden(lacks("write")),
        onclick: () =>
          bindDialog({ vhost, destination: name, destination_type: "queue", onDone: () => (polling.now(), refresh()) }),
      },
      "Bind…",
    );
    body.append(h("div.row", h("span.grow"), add), h("div.panel.flush", list.element));
    // RabbitMQ's API also returns the key by which a binding is deleted; Holdfast's own does not.
    const polling = view.poll(
      async () => {
        const inBroker = (row() ?? (await get(at(""), null, signal))).in_broker !== false;
        list.update(
          inBroker
            ? await rabbit.get(path`/queues/${vhost}/${name}/bindings`, signal)
            : [],
        );
      },
      { signal },
    );
  };
}

export function consumersTab({ at, row, view }) {
  return (body, signal) => {
    const list = table({
      label: "Consumers",
      key: (one) => `${one.connection}|${one.channel}|${one.tag}`,
      empty: "No AMQP consumers.",
      columns: [
        { id: "tag", label: "Tag", main: true, cell: (one) => ({ mark: one.tag, node: h("span.mono", one.tag) }) },
        {
          id: "connection",
          label: "Connection",
          wide: true,
          cell: (one) => ({ mark: `${one.connection}`, node: h("a", { href: "#/connections" }, one.connection) }),
        },
        { id: "channel", label: "Channel", num: true, cell: (one) => plain(one.channel) },
        { id: "user", label: "User", cell: (one) => plain(one.user) },
        { id: "prefetch", label: "Prefetch", num: true, cell: (one) => plain(one.prefetch) },
        { id: "ack", label: "Ack mode", cell: (one) => (one.no_ack ? "automatic" : "manual") },
        { id: "unacked", label: "Unacked", num: true, cell: (one) => cells.count(one.unacked) },
        { id: "priority", label: "Priority", num: true, cell: (one) => plain(one.priority) },
      ],
    });
    body.append(h("div.panel.flush", list.element));
    view.poll(async () => list.update((row() ?? (await get(at(""), null, signal))).consumers_detail ?? []), { signal });
  };
}
