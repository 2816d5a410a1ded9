// Which messages of this queue died, and why? Grouped by reason; they can be sent back or deleted.

import { get, post, queuePath } from "./api.js";
import { confirm } from "./dialog.js";
import { h, renew } from "./dom.js";
import { ago, count, iso, plain, plural, time } from "./format.js";
import { preview } from "./payload.js";
import { showMessage } from "./queue_messages.js";
import { table } from "./table.js";

const MOST = 1000;

/** Dead letters of one queue, with all that can be done: {element, refresh(signal)}. */
export function deadLetters({ vhost, name, onDone = () => {} }) {
  const at = (rest) => queuePath(vhost, name, rest);
  let reason = null;
  let total = 0;
  const groups = h("div.row", { role: "group", "aria-label": "Reasons" });
  const many = h("span.quiet.grow", { role: "status" });
  const again = h("button", { type: "button", onclick: () => act("redrive") }, "Redrive…");
  const drop = h("button.danger", { type: "button", onclick: () => act("delete") }, "Delete…");
  const list = table({
    label: `Dead letters of ${name}`,
    key: (row) => row.id,
    select: true,
    onChoose: showChoice,
    open: (row) =>
      showMessage(row, {
        more: [
          ["Died", `${time(row.died_at)}, ${ago(row.died_at)}`],
          ["Reason", row.reason],
          ["Cause", row.cause],
          ["From queue", plain(row.queue)],
          ["Redriven before", row.redriven || null],
        ],
        actions: (close) => [
          h("button.danger", { type: "button", onclick: () => (close(), act("delete", [row])) }, "Delete…"),
          h("button.primary", { type: "button", onclick: () => (close(), act("redrive", [row])) }, "Redrive…"),
        ],
      }),
    empty: "No dead letters.",
    columns: [
      {
        id: "id",
        label: "Id",
        main: true,
        cell: (row) => ({ mark: String(row.id), node: h("span.mono", plain(row.id)) }),
      },
      { id: "reason", label: "Reason", wide: true, cell: (row) => row.reason || "–" },
      { id: "cause", label: "Cause", cell: (row) => row.cause || "–" },
      { id: "died", label: "Died", num: true, cell: (row) => ({ text: ago(row.died_at), title: iso(row.died_at) }) },
      { id: "attempts", label: "Attempts", num: true, cell: (row) => plain(row.attempts) },
      { id: "queue", label: "From", cell: (row) => plain(row.queue) },
      {
        id: "payload",
        label: "Payload",
        wide: true,
        cell: (row) => ({ mark: preview(row.payload), node: h("span.preview", preview(row.payload)) }),
      },
    ],
  });

  function showChoice(rows) {
    const word = rows.length ? ` ${count(rows.length)}` : " all";
    again.textContent = `Redrive${word}…`;
    drop.textContent = `Delete${word}…`;
    again.disabled = drop.disabled = total === 0;
  }

  async function act(what, rows = list.chosen()) {
    const ids = rows.length ? rows.map((row) => row.id) : null;
    const which = ids
      ? plural(ids.length, "dead letter")
      : reason
        ? `all dead letters with the reason "${reason}"`
        : `all ${count(total)} dead letters`;
    const chosen = { ids, reason: ids ? null : reason };
    const redrive = what === "redrive";
    const done = await confirm({
      title: redrive ? "Redrive dead letters" : "Delete dead letters",
      text: redrive
        ? `This puts ${which} back into the queue they died in, with attempts from the start.`
        : `This deletes ${which} for good.`,
      yes: redrive ? "Redrive" : "Delete",
      typed: !redrive && !ids ? name : undefined,
      danger: !redrive,
      work: () => post(at(redrive ? "/redrive" : "/dead/delete"), chosen),
      said: (answer) =>
        redrive
          ? `${plural(answer.redriven, "message")} went back.`
          : `${plural(answer.deleted, "dead letter")} deleted.`,
    });
    if (!done) return;
    list.clear();
    onDone();
  }

  function choose(next) {
    reason = next;
    list.clear();
    onDone();
  }

  return {
    element: h("div.stack", groups, h("div.row", many, again, drop), h("div.panel.flush", list.element)),
    async refresh(signal) {
      const answer = await get(at("/dead"), { count: MOST, reason }, signal);
      total = answer.total;
      const all = answer.groups.reduce((sum, one) => sum + one.count, 0);
      renew(groups, [answer.groups, reason], () => [
        h(
          "button.small",
          {
            type: "button",
            "aria-pressed": String(reason === null),
            class: reason === null ? "on" : null,
            onclick: () => choose(null),
          },
          `All ${count(Math.max(all, total))}`,
        ),
        ...answer.groups.map((one) =>
          h(
            "button.small",
            {
              type: "button",
              title: `first ${time(one.first_died_at)}, last ${time(one.last_died_at)}`,
              "aria-pressed": String(reason === one.reason),
              class: reason === one.reason ? "on" : null,
              onclick: () => choose(one.reason),
            },
            `${one.reason || one.cause} · ${count(one.count)}`,
          ),
        ),
      ]);
      groups.hidden = !answer.groups.length;
      many.textContent =
        total > answer.letters.length ? `The first ${count(answer.letters.length)} of ${count(total)} are shown.` : "";
      list.update(answer.letters);
      showChoice(list.chosen());
      return answer;
    },
  };
}

export function deadTab({ vhost, name, view, refresh }) {
  return (body, signal) => {
    const letters = deadLetters({ vhost, name, onDone: () => (polling.now(), refresh()) });
    body.append(letters.element);
    const polling = view.poll(() => letters.refresh(signal), { signal });
  };
}
