// List of queues: paged, filtered and sorted by the server.

import { get, post, rabbit } from "./api.js";
import { ask } from "./dialog.js";
import { h } from "./dom.js";
import { rate, rough } from "./format.js";
import { fields } from "./form.js";
import { badge, cells, chooser, filterBox, head } from "./parts.js";
import { rights } from "./rights.js";
import { go } from "./router.js";
import { pager, table } from "./table.js";

const SIZES = ["25", "100", "500"];

export const COLUMNS = [
  {
    id: "name",
    label: "Queue",
    main: true,
    sort: "name",
    cell: (row) => cells.hosted(row.vhost, row.name, "queues", row.vhost, row.name),
  },
  {
    id: "state",
    label: "State",
    sort: "state",
    cell: (row) => ({
      mark: `${row.state}${row.durable}${row.exclusive}${row.auto_delete}`,
      node: [
        cells.state(row.state).node,
        row.exclusive ? badge("exclusive", "plain") : "",
        row.durable === false ? badge("transient", "plain") : "",
      ],
    }),
  },
  { id: "ready", label: "Ready", num: true, sort: "ready", cell: (row) => cells.count(row.ready) },
  { id: "leased", label: "Leased", num: true, sort: "leased", cell: (row) => cells.count(row.leased) },
  { id: "delayed", label: "Delayed", num: true, sort: "delayed", cell: (row) => cells.count(row.delayed) },
  {
    id: "oldest",
    label: "Oldest",
    num: true,
    sort: "oldest_age",
    cell: (row) => ({ text: rough(row.oldest_age), title: row.oldest_age === null ? "" : `${row.oldest_age} s` }),
  },
  { id: "lag", label: "Lag", num: true, sort: "lag", cell: (row) => cells.count(row.lag) },
  { id: "consumers", label: "Consumers", num: true, sort: "consumers", cell: (row) => cells.count(row.consumers) },
  {
    id: "put",
    label: "Put",
    num: true,
    sort: "put_rate",
    cell: (row) => ({ text: rate(row.put_rate), title: String(row.put_rate) }),
  },
  {
    id: "lease",
    label: "Deliver",
    num: true,
    sort: "lease_rate",
    cell: (row) => ({ text: rate(row.lease_rate), title: String(row.lease_rate) }),
  },
  {
    id: "ack",
    label: "Ack",
    num: true,
    sort: "ack_rate",
    cell: (row) => ({ text: rate(row.ack_rate), title: String(row.ack_rate) }),
  },
];

async function create(view) {
  const hosts = await rabbit.get("/vhosts", view.signal).catch(() => [{ name: "/" }]);
  const form = fields([
    { name: "name", label: "Name", required: true, autofocus: true },
    { name: "vhost", label: "Virtual host", kind: "choice", options: hosts.map((one) => one.name), value: "/" },
    { name: "ttl", label: "Time to live, seconds", kind: "number", placeholder: "no limit" },
    { name: "x-max-length", label: "Maximum messages", kind: "whole", placeholder: "no limit" },
    { name: "x-max-length-bytes", label: "Maximum bytes", kind: "whole", placeholder: "no limit" },
    {
      name: "x-overflow",
      label: "When full",
      kind: "choice",
      options: [
        ["", "drop the oldest message"],
        ["reject-publish", "reject new messages"],
        ["reject-publish-dlx", "dead-letter new messages"],
      ],
    },
    { name: "x-dead-letter-exchange", label: "Dead-letter exchange", placeholder: "none" },
    { name: "x-dead-letter-routing-key", label: "Dead-letter routing key", placeholder: "unchanged" },
    { name: "x-delivery-limit", label: "Delivery limit", kind: "whole", placeholder: "no limit" },
    { name: "x-max-priority", label: "Maximum priority", kind: "whole", placeholder: "none" },
    {
      name: "more",
      label: "Other arguments",
      kind: "pairs",
      rows: 2,
      span: true,
      placeholder: "x-single-active-consumer: true",
      hint: "One AMQP argument per line, as name: value.",
    },
  ]);
  const made = await ask({
    title: "Create a queue",
    fields: form,
    yes: "Create queue",
    text: "The queue is durable. Empty fields keep their defaults.",
    work: ({ name, vhost, ttl, more, ...named }) =>
      post("/queues", {
        name,
        vhost,
        arguments: { ...named, ...(ttl === undefined ? {} : { "x-message-ttl": Math.round(ttl * 1000) }), ...more },
      }),
    said: (row) => `Queue ${row.name} created.`,
  });
  if (made) go("queues", made.vhost, made.name);
}

export function page(view) {
  view.title("Queues");
  const { query } = view;
  const change = (values) => {
    view.keep(values);
    polling.now();
  };
  const list = table({
    label: "Queues",
    columns: COLUMNS,
    key: (row) => `${row.vhost}/${row.name}`,
    open: (row) => go("queues", row.vhost, row.name),
    empty: "No matching queues. Create one, or change the filter.",
    sort: query.get("sort") ?? "name",
    reverse: query.get("reverse") === "true",
    onSort: (sort, reverse) => change({ sort, reverse: reverse || null, page: null }),
  });
  const pages = pager((page) => change({ page }));
  const regex = h("input", {
    type: "checkbox",
    checked: query.get("regex") === "true",
    onchange: () => change({ regex: regex.checked || null, page: null }),
  });
  const host = chooser("Virtual host", [["", "all"]], query.get("vhost") ?? "", (vhost) =>
    change({ vhost, page: null }),
  );
  const size = chooser("Per page", SIZES, query.get("size") ?? "100", (value) =>
    change({ size: value === "100" ? null : value, page: null }),
  );
  const filter = filterBox("Filter by name", query.get("name"), (name) => change({ name, page: null }));
  const may = rights();
  const make = may.guard(
    h("button.primary", { type: "button", onclick: () => create(view) }, "Create a queue"),
    "create",
  );
  view.root.append(
    head("Queues", make),
    may.element,
    h(
      "div.row",
      filter,
      h("label.row", regex, "Regular expression"),
      host.element,
      size.element,
      h("span.grow"),
      pages.element,
    ),
    h("div.panel.flush", list.element),
  );
  rabbit.get("/vhosts", view.signal).then(
    (hosts) => host.fill([["", "all"], ...hosts.map((one) => [one.name, one.name])], query.get("vhost") ?? ""),
    () => {},
  );
  const polling = view.poll(async (signal) => {
    await may.refresh(signal);
    const answer = await get(
      "/queues",
      {
        page: query.get("page") ?? 1,
        page_size: query.get("size") ?? 100,
        name: query.get("name"),
        use_regex: query.get("regex"),
        sort: query.get("sort") ?? "name",
        sort_reverse: query.get("reverse"),
        vhost: query.get("vhost"),
      },
      signal,
    );
    list.update(answer.items);
    pages.update(answer);
  });
}
