// Dead letters of all queues; those of one queue are shown below the list.

import { get } from "./api.js";
import { h, refill } from "./dom.js";
import { count, exact, plural } from "./format.js";
import { badge, cells, filterBox, head } from "./parts.js";
import { deadLetters, groupName } from "./queue_dead.js";
import { table } from "./table.js";

const BADGES = 6;

export function page(view) {
  view.title("Dead letters");
  let rows = [];
  let open = null;
  let opened = null;
  const below = h("section.stack");
  const sum = h("p.quiet");
  const list = table({
    label: "Queues with dead letters",
    key: (row) => `${row.vhost}/${row.name}`,
    open: (row) => choose(row.vhost, row.name),
    empty: "No dead letters.",
    columns: [
      {
        id: "name",
        label: "Queue",
        main: true,
        cell: (row) => ({
          mark: `${row.vhost}|${row.name}`,
          node: [
            h("button.link", { type: "button", onclick: () => choose(row.vhost, row.name) }, row.name),
            row.vhost && row.vhost !== "/" ? h("span.quiet", ` ${row.vhost}`) : "",
          ],
        }),
      },
      {
        id: "count",
        label: "Dead letters",
        num: true,
        cell: (row) => ({ text: `${count(row.count)}${row.more ? "+" : ""}`, title: exact(row.count) }),
      },
      {
        id: "reasons",
        label: "Reasons",
        wide: true,
        cell: (row) => ({
          mark: JSON.stringify(row.groups.map((one) => [one.origin, one.reason, one.cause, one.count])),
          node: [
            row.groups
              .slice(0, BADGES)
              .map((one) => badge(`${groupName(one, row.groups)} · ${count(one.count)}`, "plain")),
            row.groups.length > BADGES ? h("span.quiet", ` and ${count(row.groups.length - BADGES)} more`) : "",
          ],
        }),
      },
      {
        id: "last",
        label: "Newest",
        num: true,
        cell: (row) =>
          cells.ago(
            row.groups.reduce(
              (last, one) => (Number(one.last_died_at) > Number(last ?? 0) ? one.last_died_at : last),
              null,
            ),
          ),
      },
    ],
  });
  const filter = filterBox("Filter by queue or reason", view.query.get("name"), (name) => {
    view.keep({ name });
    show();
  });

  function show() {
    const wanted = (view.query.get("name") ?? "").toLowerCase();
    const fits = (row) =>
      `${row.name} ${row.groups.map((one) => `${one.reason} ${one.cause}`).join(" ")}`.toLowerCase().includes(wanted);
    list.update(rows.filter(fits));
    const all = rows.reduce((sum, row) => sum + row.count, 0);
    const least = rows.some((row) => row.more) ? "At least " : "";
    sum.textContent = rows.length ? `${least}${plural(all, "dead letter")} in ${plural(rows.length, "queue")}.` : "";
  }

  function choose(vhost, name) {
    open = { vhost, name };
    view.keep(open && { vhost, queue: name });
    opened = deadLetters({ vhost, name, onDone: () => polling.now() });
    refill(below, h("h2", { tabindex: "-1", id: "opened" }, `Dead letters of ${name}`), opened.element);
    below.querySelector("h2").focus({ preventScroll: true });
    below.scrollIntoView({ block: "nearest" });
    polling.now();
  }

  view.root.append(head("Dead letters"), h("div.row", filter, sum), h("div.panel.flush", list.element), below);
  const polling = view.poll(async (signal) => {
    rows = (await get("/dead", null, signal)).queues;
    show();
    if (opened) await opened.refresh(signal);
  });
  if (view.query.get("queue")) choose(view.query.get("vhost") ?? "/", view.query.get("queue"));
}
