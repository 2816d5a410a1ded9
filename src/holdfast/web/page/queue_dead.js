// Dead letters of a queue, grouped by origin, reason and cause; they can be redriven or deleted.

import { enc, get, post, queuePath } from "./api.js";
import { confirm, doing } from "./dialog.js";
import { h, renew } from "./dom.js";
import { ago, count, exact, iso, plain, plural, time } from "./format.js";
import { preview } from "./payload.js";
import { showMessage } from "./queue_messages.js";
import { forbidden, rights } from "./rights.js";
import { table } from "./table.js";

const MOST = 1000;
const same = (one, other) => ["origin", "reason", "cause"].every((name) => one[name] === other[name]);

/** The name of a group: its reason; with its cause and origin where others share the reason. */
export function groupName(one, all) {
  const likes = all.filter((other) => other.reason === one.reason);
  const words = [one.reason || one.cause || "no reason"];
  if (one.reason && likes.some((other) => other.cause !== one.cause)) words.push(one.cause);
  if (all.some((other) => other.origin !== one.origin)) words.push(`from ${one.origin || "an unknown queue"}`);
  return words.join(", ");
}

/** The queues of these dead letters, in words. */
function ofQueues(origins) {
  const names = [...new Set(origins)].filter(Boolean);
  if (!names.length) return "";
  return names.length > 3 ? ` of ${names.length} queues` : ` of ${names.join(" and ")}`;
}

/** Dead letters of one queue, with their actions: {element, refresh(signal)}. */
export function deadLetters({ vhost, name, onDone = () => {} }) {
  const at = (rest) => queuePath(vhost, name, rest);
  let chosen = null;
  let seen = { total: 0, more: false, groups: [] };
  const groups = h("div.row", { role: "group", "aria-label": "Reasons" });
  const many = h("span.quiet.grow", { role: "status" });
  const may = rights({ resource: "queue", vhost, name });
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
          ["Original queue", plain(row.queue)],
          ["Times redriven", row.redriven || null],
        ],
        whole: () => doing(null, () => get(at(`/dead/${enc(row.id)}`))),
        actions: (close) => [
          h(
            "button.danger",
            { ...forbidden(may.lacks("queue_discard")), onclick: () => (close(), act("delete", [row])) },
            "Delete…",
          ),
          h(
            "button.primary",
            { ...forbidden(may.lacks("queue_redrive")), onclick: () => (close(), act("redrive", [row])) },
            "Redrive…",
          ),
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

  /** The number of dead letters in the chosen group, among those that were examined. */
  function chosenCount() {
    return chosen ? (seen.groups.find((one) => same(one, chosen))?.count ?? 0) : seen.total;
  }

  function showChoice(rows) {
    const word = rows.length ? ` ${count(rows.length)}` : " all";
    again.textContent = `Redrive${word}…`;
    drop.textContent = `Delete${word}…`;
    const none = chosenCount() === 0 && !seen.more;
    for (const [button, missing] of [
      [again, may.lacks("queue_redrive")],
      [drop, may.lacks("queue_discard")],
    ]) {
      button.disabled = none || Boolean(missing);
      button.title = missing ?? "";
    }
  }

  /** The dead letters that an action applies to, in words. */
  function named(rows) {
    if (rows.length) return `${plural(rows.length, "dead letter")}${ofQueues(rows.map((row) => row.queue))}`;
    const number = chosenCount();
    const all = seen.more ? "all dead letters" : `${number === 1 ? "the" : "all"} ${plural(number, "dead letter")}`;
    const least = seen.more ? `, at least ${count(number)},` : "";
    if (!chosen) return `${all}${ofQueues(seen.groups.map((one) => one.origin))}${least}`;
    const why = chosen.reason ? `the reason "${chosen.reason}"` : "no reason";
    return `${all}${ofQueues([chosen.origin])} with ${why} (${chosen.cause || "no cause"})${least}`;
  }

  async function act(what, rows = list.chosen()) {
    const ids = rows.length ? rows.map((row) => row.id) : null;
    const which = named(rows);
    const wanted = ids ? { ids } : { ...chosen };
    const redrive = what === "redrive";
    const done = await confirm({
      title: redrive ? "Redrive dead letters" : "Delete dead letters",
      text: redrive
        ? `This returns ${which} to the queue in which they died, and resets their attempts.`
        : `This permanently deletes ${which}.`,
      yes: redrive ? "Redrive" : "Delete",
      typed: !redrive && !ids ? name : undefined,
      danger: !redrive,
      work: () => post(at(redrive ? "/redrive" : "/dead/delete"), wanted),
      said: (answer) =>
        redrive
          ? `${plural(answer.redriven, "message")} redriven.`
          : `${plural(answer.deleted, "dead letter")} deleted.`,
    });
    if (!done) return;
    list.clear();
    onDone();
  }

  function choose(next) {
    chosen = next && { origin: next.origin, reason: next.reason, cause: next.cause };
    list.clear();
    onDone();
  }

  // An empty reason is sent, too: without it all reasons would be selected.
  const ask = (signal) => get(`${at("/dead")}?${new URLSearchParams({ count: MOST, ...chosen })}`, null, signal);

  const chip = (on, label, title, onclick) =>
    h("button.small", { type: "button", title, "aria-pressed": String(on), class: on ? "on" : null, onclick }, label);

  function showGroups() {
    const plus = seen.more ? "+" : "";
    renew(groups, [seen.groups, seen.more, chosen], () => [
      chip(chosen === null, `All ${count(seen.total)}${plus}`, null, () => choose(null)),
      ...seen.groups.map((one) =>
        chip(
          chosen !== null && same(one, chosen),
          `${groupName(one, seen.groups)} · ${count(one.count)}${plus}`,
          `${one.reason || "no reason"} (${one.cause || "no cause"}), died in ${one.origin || "an unknown queue"}, first ${time(one.first_died_at)}, last ${time(one.last_died_at)}`,
          () => choose(one),
        ),
      ),
    ]);
    groups.hidden = !seen.groups.length;
  }

  return {
    element: h("div.stack", groups, h("div.row", many, again, drop), h("div.panel.flush", list.element)),
    async refresh(signal) {
      await may.refresh(signal);
      let answer = await ask(signal);
      if (chosen && !answer.more && !answer.groups.some((one) => same(one, chosen))) {
        chosen = null; // the group has no dead letters any more
        answer = await ask(signal);
      }
      seen = answer;
      showGroups();
      const shown = answer.letters.length;
      if (answer.more && !shown) many.textContent = "No matches among the messages that were examined; there are more.";
      else if (answer.more || chosenCount() > shown)
        many.textContent = `The first ${exact(shown)} of ${answer.more ? "at least " : ""}${exact(chosenCount())} are shown.`;
      else many.textContent = "";
      list.update(answer.letters);
      showChoice(list.chosen());
      return answer;
    },
  };
}

export function deadTab({ vhost, name, view, refresh }) {
  return (body, signal) => {
    const list = deadLetters({ vhost, name, onDone: () => (polling.now(), refresh()) });
    body.append(list.element);
    const polling = view.poll(() => list.refresh(signal), { signal });
  };
}
