// How is this queue doing, and what can be done with it? Figures above, the rest in tabs.

import { del, get, post, queuePath } from "./api.js";
import { confirm, doing } from "./dialog.js";
import { h, renew } from "./dom.js";
import { bytes, count, duration, exact, fromStore, plain, rate, rough } from "./format.js";
import { crumbs, facts, figures, head, panel, stateBadge, tabs } from "./parts.js";
import { go, link } from "./router.js";
import { bindingsTab, consumersTab } from "./queue_routes.js";
import { deadTab } from "./queue_dead.js";
import { delayedTab } from "./queue_delayed.js";
import { leasesTab } from "./queue_leases.js";
import { messagesTab } from "./queue_messages.js";
import { publishTab } from "./queue_publish.js";
import { replayTab } from "./queue_replay.js";

export function page(view) {
  const { vhost, name } = view.params;
  const at = (rest) => queuePath(vhost, name, rest);
  view.title(name);
  let row = null;
  let started = false;
  const state = h("span");
  // Until it is known what the user may do, nothing can be pressed.
  const pause = h("button", { type: "button", disabled: true, onclick: () => togglePause() }, "Pause");
  const purge = h("button.danger", { type: "button", disabled: true, onclick: () => purgeIt() }, "Purge…");
  const remove = h("button.danger", { type: "button", disabled: true, onclick: () => deleteIt() }, "Delete…");
  const now = figures();
  const limits = h("div");
  const fate = h("div");
  const may = (kind) => row?.may?.[kind] !== false;
  const lacks = (kind) => (may(kind) ? null : `Your user has no ${kind} permission for this queue.`);
  const context = { vhost, name, at, view, row: () => row, refresh: () => polling.now(), may, lacks };
  /** A part of the page that needs a permission; without it the part says so. */
  const needing = (kind, make) => (body, signal) =>
    may(kind) ? make(body, signal) : body.append(h("p.empty", `${lacks(kind)} This part is not shown.`));
  const shown = tabs({
    label: `Parts of ${name}`,
    chosen: view.query.get("tab"),
    onChoose: (tab) => view.keep({ tab: tab === "messages" ? null : tab }),
    signal: view.signal,
    list: [
      { id: "messages", label: "Messages", make: needing("read", messagesTab(context)) },
      { id: "publish", label: "Publish", make: needing("write", publishTab(context)) },
      { id: "leases", label: "Leases", make: needing("read", leasesTab(context)) },
      { id: "delayed", label: "Delayed", make: needing("read", delayedTab(context)) },
      { id: "dead", label: "Dead letters", make: needing("read", deadTab(context)) },
      { id: "replay", label: "Replay", make: needing("configure", replayTab(context)) },
      { id: "bindings", label: "Bindings", make: bindingsTab(context) },
      { id: "consumers", label: "Consumers", make: consumersTab(context) },
      { id: "settings", label: "Settings", make: settingsTab(context) },
    ],
  });
  view.root.append(
    head([crumbs("queues", "Queues", name, vhost), " ", state], pause, purge, remove),
    limits,
    now.element,
    fate,
    shown.element,
  );

  async function togglePause() {
    const resume = row?.paused;
    await doing(
      pause,
      () => post(at(resume ? "/resume" : "/pause")),
      resume ? `${name} delivers again.` : `${name} is paused: nothing is delivered.`,
    );
    polling.now();
  }

  async function purgeIt() {
    await confirm({
      title: `Purge ${name}`,
      text: `All ${count((row?.ready ?? 0) + (row?.delayed ?? 0))} messages that wait are removed from the queue. The log keeps them until retention takes them; a replay can bring them back.`,
      yes: "Purge the queue",
      typed: name,
      danger: true,
      work: () => post(at("/purge")),
      said: (answer) => `${count(answer.purged)} messages were removed from ${name}.`,
    });
    polling.now();
  }

  async function deleteIt() {
    const done = await confirm({
      title: `Delete ${name}`,
      text: "The queue, its bindings and all its messages are deleted. This cannot be taken back.",
      yes: "Delete the queue",
      typed: name,
      danger: true,
      work: () => del(at("")),
      said: `The queue ${name} is deleted.`,
    });
    if (done) go("queues");
  }

  const polling = view.poll(async (signal) => {
    row = await get(at(""), null, signal);
    const { stats } = row;
    renew(state, row.state, () => stateBadge(row.state));
    pause.textContent = row.paused ? "Resume" : "Pause";
    for (const [button, kind] of [
      [pause, "configure"],
      [purge, "read"],
      [remove, "configure"],
    ]) {
      button.disabled = !may(kind);
      button.title = lacks(kind) ?? "";
    }
    const missing = ["read", "write", "configure"].filter((kind) => !may(kind));
    renew(limits, missing, () =>
      missing.length
        ? h(
            "p.notice",
            { role: "status" },
            `Your user has no ${missing.join(", ")} permission for this queue: what needs it is not shown, or cannot be pressed.`,
          )
        : [],
    );
    now.update([
      ["Ready", count(row.ready), exact(row.ready)],
      ["Leased", count(row.leased), exact(row.leased)],
      ["Delayed", count(row.delayed), exact(row.delayed)],
      deadFigure(row),
      ["Oldest", rough(row.oldest_age), row.oldest_age === null ? "" : `${row.oldest_age} s`],
      ["Lag", count(row.lag), exact(row.lag)],
      ["Put", rate(row.put_rate), String(row.put_rate)],
      ["Out", rate(row.lease_rate), String(row.lease_rate)],
      ["Acked", rate(row.ack_rate), String(row.ack_rate)],
    ]);
    renew(fate, [row.died, row.dead_letters_dropped, row.dead_letter_queues], () => fateOf(row));
    shown.number("leases", stats?.leases);
    shown.number("delayed", row.delayed);
    shown.number("dead", row.dead_letter_exchange ? row.died : stats?.dead);
    shown.number("consumers", row.consumers);
    shown.number("bindings", row.bindings?.length);
    if (!started) {
      started = true;
      shown.start();
    }
  });
  polling.running.catch(() => {});
}

/** How many dead letters there are; of a queue whose dead letters go to an exchange, how many went. */
function deadFigure(row) {
  const [label, dead] = row.dead_letter_exchange ? ["Died", row.died] : ["Dead", row.stats?.dead];
  return [label, count(dead), exact(dead), dead ? "warn" : ""];
}

/** Where the dead letters of this queue went, and how many were lost. */
function fateOf(row) {
  if (!row.dead_letter_exchange || !row.died) return [];
  const queues = row.dead_letter_queues.map((one) => [
    " ",
    h("a", { href: link("queues", one.vhost, one.name) }, one.name),
    ` (${count(one.ready)} ready)`,
  ]);
  const exchange = row.dead_letter_exchange.exchange;
  const lost = row.dead_letters_dropped;
  return h(
    `p.${lost ? "notice.bad" : "quiet"}`,
    `Dead letters of this queue: ${count(row.died)}, through ${exchange ? `the exchange ${exchange}` : "the default exchange"} to`,
    queues.length ? queues : " no queue",
    ".",
    lost ? ` ${count(lost)} were taken by no queue and are lost: declare the exchange, and bind a queue to it.` : "",
  );
}

const WORDS = { lease: "s", ttl: "s", dedup_window: "s", starvation: "s", history: "s" };

/** Settings and lifetime counts. */
function settingsTab(context) {
  return (body, signal) => {
    const chosen = facts();
    const counted = facts();
    body.append(
      h("div.grid2", panel("Settings", null, chosen.element), panel("Since the beginning", null, counted.element)),
    );
    context.view.poll(
      async () => {
        const row = context.row() ?? (await get(context.at(""), null, signal));
        const word = (name, value) =>
          value === null ? "–" : name.includes("bytes") ? bytes(value) : WORDS[name] ? duration(value) : plain(value);
        chosen.update([
          ["log", h("a", { href: link("logs", row.log) }, fromStore(row.log).name)],
          ["memory", bytes(row.memory)],
          ["durable", plain(row.durable)],
          ...Object.entries(row.settings ?? {})
            .filter(([name]) => name !== "log")
            .map(([name, value]) => [name.replaceAll("_", " "), word(name, value)]),
          ...Object.entries(row.arguments ?? {}).map(([name, value]) => [name, plain(value)]),
        ]);
        const skip = [
          "name",
          "log",
          "ready",
          "delayed",
          "leased",
          "oldest_age",
          "lag",
          "put_rate",
          "lease_rate",
          "ack_rate",
          "next_due",
          "next_due_at",
          "next_due_time",
          "leases",
          "moving",
          "paused",
          "checkpoint_failing_since",
          "checkpoint_failing_since_at",
        ];
        const shown = Object.entries(row.stats ?? {}).filter(([name]) => !skip.includes(name));
        counted.update(
          shown.map(([name, value]) => [
            name.replaceAll("_", " "),
            /p50|p99|window/.test(name) ? duration(value) : typeof value === "number" ? count(value) : plain(value),
          ]),
        );
      },
      { signal },
    );
  };
}
