// One exchange: its bindings in both directions, and a form to publish to it.

import { enc, rabbit } from "./api.js";
import { bindDialog, bindingColumns } from "./binding.js";
import { confirm, doing } from "./dialog.js";
import { h } from "./dom.js";
import { plain } from "./format.js";
import { fields } from "./form.js";
import { crumbs, facts, head, panel } from "./parts.js";
import { DEFAULT } from "./page_exchanges.js";
import { rights } from "./rights.js";
import { go, link } from "./router.js";
import { table } from "./table.js";

function publishForm(at, name, may) {
  const form = fields([
    { name: "routing_key", label: "Routing key" },
    { name: "persistent", label: "Persistent", kind: "check", value: true },
    { name: "payload", label: "Payload", kind: "area", rows: 4, span: true },
    { name: "headers", label: "Headers", kind: "pairs", rows: 2, span: true, placeholder: "name: value" },
    {
      name: "properties",
      label: "Properties",
      kind: "pairs",
      rows: 2,
      span: true,
      placeholder: "content_type: application/json",
    },
  ]);
  const button = may.guard(h("button.primary", { type: "submit" }, "Publish"), "exchange_publish");
  const submit = async (event) => {
    event.preventDefault();
    const values = form.read();
    if (!values) return;
    const properties = {
      delivery_mode: values.persistent ? 2 : 1,
      ...(values.headers ? { headers: values.headers } : {}),
      ...values.properties,
    };
    await doing(
      button,
      () =>
        rabbit.post(`${at}/publish`, {
          routing_key: values.routing_key ?? "",
          payload: values.payload ?? "",
          payload_encoding: "string",
          properties,
        }),
      ({ routed }) =>
        routed
          ? `Published to ${name}; the message was routed.`
          : `Published to ${name}, but no queue matched.`,
    );
  };
  return h(
    "form.stack",
    { onsubmit: submit, novalidate: true, "aria-label": "Publish" },
    form.element,
    h("div.actions", button),
  );
}

export function page(view) {
  const { vhost, name } = view.params;
  const isDefault = name === DEFAULT;
  const at = `/exchanges/${enc(vhost)}/${enc(name)}`;
  view.title(name);
  const refresh = () => polling.now();
  const about = facts();
  const may = rights({ resource: "exchange", vhost, name: isDefault ? "" : name });
  const linkTo = (row) =>
    h(
      "a",
      {
        href:
          row.destination_type === "exchange"
            ? link("exchanges", vhost, row.destination)
            : link("queues", vhost, row.destination),
      },
      row.destination,
      row.destination_type === "exchange" ? h("span.quiet", " (exchange)") : "",
    );
  const linkFrom = (row) => h("a", { href: link("exchanges", vhost, row.source) }, row.source || "(default)");
  const key = (row) => JSON.stringify([row.source, row.destination_type, row.destination, row.properties_key]);
  const out = table({
    label: "Destinations",
    key,
    columns: bindingColumns("destination", refresh, linkTo, () => may.lacks("exchange_bind_from")),
    empty: "No bindings: messages that are published here are dropped or returned.",
  });
  const into = table({
    label: "Sources",
    key,
    columns: bindingColumns("source", refresh, linkFrom, () => may.lacks("exchange_bind_to")),
    empty: "No other exchange is bound to this one.",
  });
  const fixed = isDefault || name.startsWith("amq.");
  const bind = h(
    "button",
    { type: "button", onclick: () => bindDialog({ vhost, source: name, onDone: refresh }) },
    "Bind…",
  );
  if (!isDefault) may.guard(bind, "exchange_bind_from");
  const remove = h("button.danger", { type: "button", onclick: deleteIt }, "Delete…");
  if (!fixed) may.guard(remove, "exchange_delete");
  view.root.append(
    head(crumbs("exchanges", "Exchanges", isDefault ? "(default)" : name, vhost), fixed ? null : remove),
    may.element,
    h(
      "section.panel.flush",
      h("header", h("h2", "Destinations"), isDefault ? h("span.quiet", "every queue, by its name") : bind),
      out.element,
    ),
    h(
      "div.grid2",
      panel("About", null, about.element),
      h("section.panel.flush", h("header", h("h2", "Sources")), into.element),
    ),
    panel("Publish", null, publishForm(at, isDefault ? "the default exchange" : name, may)),
  );
  async function deleteIt() {
    const done = await confirm({
      title: `Delete ${name}`,
      text: "This deletes the exchange and its bindings. Queues and their messages are kept.",
      yes: "Delete exchange",
      typed: name,
      danger: true,
      work: () => rabbit.del(at),
      said: `Exchange ${name} deleted.`,
    });
    if (done) go("exchanges");
  }
  const polling = view.poll(async (signal) => {
    await may.refresh(signal);
    const [one, outgoing, incoming] = await Promise.all([
      rabbit.get(at, signal),
      rabbit.get(`${at}/bindings/source`, signal),
      rabbit.get(`${at}/bindings/destination`, signal),
    ]);
    about.update([
      ["Type", one.type],
      ["Virtual host", one.vhost],
      ["Durable", plain(one.durable)],
      ["Auto-delete", plain(one.auto_delete)],
      ["Internal", plain(one.internal)],
      ...Object.entries(one.arguments ?? {}).map(([label, value]) => [label, plain(value)]),
      ...(one.policy ? [["Policy", one.policy]] : []),
    ]);
    out.update(outgoing);
    into.update(incoming);
  });
}
