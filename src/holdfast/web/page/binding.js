// Bindings from an exchange to a queue or another exchange: dialogs to add and remove them.

import { enc, rabbit } from "./api.js";
import { ask, confirm } from "./dialog.js";
import { h } from "./dom.js";
import { fields } from "./form.js";
import { json } from "./format.js";
import { forbidden } from "./rights.js";

const kind = (type) => (type === "exchange" ? "e" : "q");

/** The path of the bindings between an exchange and a destination. */
export function between({ vhost, source, destination, destination_type: type }) {
  return `/bindings/${enc(vhost)}/e/${enc(source)}/${kind(type)}/${enc(destination)}`;
}

/** Add a binding; the dialog asks for what is not given. */
export async function bindDialog({ vhost, source, destination, destination_type: type, onDone }) {
  const [exchanges, queues] = await Promise.all([
    rabbit.get(`/exchanges/${enc(vhost)}`),
    rabbit.get(`/queues/${enc(vhost)}`, undefined, { columns: "name" }).catch(() => []),
  ]);
  const sources = exchanges.filter((one) => one.name).map((one) => one.name);
  const list = [];
  if (!source) list.push({ name: "source", label: "Source exchange", required: true, autofocus: true, suggest: sources });
  if (!destination) {
    list.push({ name: "type", label: "Destination type", kind: "choice", options: ["queue", "exchange"] });
    list.push({
      name: "destination",
      label: "Destination name",
      required: true,
      suggest: [...(Array.isArray(queues) ? queues : (queues.items ?? [])).map((one) => one.name), ...sources],
    });
  }
  list.push({
    name: "routing_key",
    label: "Routing key",
    hint: "For topic exchanges: * matches one word, # any number of words.",
  });
  list.push({
    name: "arguments",
    label: "Arguments",
    kind: "pairs",
    rows: 3,
    span: true,
    placeholder: "x-match: all",
    hint: "One argument per line, as name: value; for headers exchanges.",
  });
  const done = await ask({
    title: source ? `Bind ${source}` : `Bind to ${destination}`,
    fields: fields(list),
    yes: "Bind",
    work: (values) =>
      rabbit.post(
        between({
          vhost,
          source: source ?? values.source,
          destination: destination ?? values.destination,
          destination_type: type ?? values.type,
        }),
        { routing_key: values.routing_key ?? "", arguments: values.arguments ?? {} },
      ),
    said: "Binding added.",
  });
  if (done) onDone();
}

/** Remove a binding, after a confirmation. */
export async function unbind(binding, onDone) {
  const done = await confirm({
    title: "Remove binding",
    text: `Messages are no longer routed from ${binding.source} to ${binding.destination}${binding.routing_key ? ` with the routing key "${binding.routing_key}"` : ""}.`,
    yes: "Unbind",
    danger: true,
    work: () => rabbit.del(`${between(binding)}/${enc(binding.properties_key)}`),
    said: "Binding removed.",
  });
  if (done) onDone();
}

/** Columns of a table of bindings; `lacks` returns the permission that is missing to unbind. */
export function bindingColumns(other, onDone, linkTo, lacks) {
  return [
    {
      id: "other",
      label: other === "destination" ? "To" : "From",
      main: true,
      cell: (row) => ({ mark: row[other], node: linkTo(row) }),
    },
    {
      id: "key",
      label: "Routing key",
      wide: true,
      cell: (row) => ({ mark: row.routing_key, node: h("code", row.routing_key || "(empty)") }),
    },
    {
      id: "arguments",
      label: "Arguments",
      wide: true,
      cell: (row) => (Object.keys(row.arguments ?? {}).length ? json(row.arguments) : "–"),
    },
    {
      id: "do",
      label: "",
      cell: (row) => ({
        mark: JSON.stringify([row.source, row.destination, row.properties_key, lacks()]),
        node: row.source
          ? h("button.small.danger", { ...forbidden(lacks()), onclick: () => unbind(row, onDone) }, "Unbind…")
          : "",
      }),
    },
  ];
}
