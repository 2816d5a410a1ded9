// One queue: figures at the top, everything else in tabs.

import { del, get, post, queuePath } from "./api.js";
import { confirm, doing } from "./dialog.js";
import { h, renew } from "./dom.js";
import { bytes, count, duration, exact, fromStore, plain, plural, rate, rough } from "./format.js";
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
  // The buttons are disabled until the user's permissions are known.
  const pause = h("button", { type: "button", disabled: true, onclick: () => togglePause() }, "Pause");
  const purge = h("button.danger", { type: "button", disabled: true, onclick: () => purgeIt() }, "Purge…");
  const remove = h("button.danger", { type: "button", disabled: true, onclick: () => deleteIt() }, "Delete…");
  const now = figures();
  const limits = h("div");
  const deadLetters = h("div");
  const may = (kind) => row?.may?.[kind] !== false;
  const lacks = (kind) => (may(kind) ? null : `Your user has no ${kind} permission for this queue.`);
  const context = { vhost, name, at, view, row: () => row, refresh: () => polling.now(), may, lacks };
  /** A tab that needs a permission; without it the tab says so. */
  const needing = (kind, make) => (body, signal) =>
    may(kind) ? make(body, signal) : body.append(h("p.empty", `${lacks(kind)} This tab is not available.`));
  const shown = tabs({
    label: `Tabs of ${name}`,
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
    deadLetters,
    shown.element,
  );

  async function togglePause() {
    const resume = row?.paused;
    await doing(
      pause,
      () => post(at(resume ? "/resume" : "/pause")),
      resume ? `${name} is resumed.` : `${name} is paused: it delivers no messages.`,
    );
    polling.now();
  }

  async function purgeIt() {
    await confirm({
      title: `Purge ${name}`,
      text: `This removes all ready and delayed messages (${count((row?.ready ?? 0) + (row?.delayed ?? 0))}) from the queue. The log keeps them until retention drops them; until then a replay can deliver them again.`,
      yes: "Purge queue",
      typed: name,
      danger: true,
      work: () => post(at("/purge")),
      said: (answer) => `${plural(answer.purged, "message")} removed from ${name}.`,
    });
    polling.now();
  }

  async function deleteIt() {
    const done = await confirm({
      title: `Delete ${name}`,
      text: "This deletes the queue, its bindings and all its messages. It cannot be undone.",
      yes: "Delete queue",
      typed: name,
      danger: true,
      work: () => del(at("")),
      said: `Queue ${name} deleted.`,
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
            `Your user has no ${missing.join(", ")} permission for this queue. Tabs and buttons that need it are not available.`,
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
      ["Delivered", rate(row.lease_rate), String(row.lease_rate)],
      ["Acked", rate(row.ack_rate), String(row.ack_rate)],
    ]);
    renew(deadLetters, [row.died, row.dead_letters_dropped, row.dead_letter_queues], () => deadLettersOf(row));
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

/** The number of dead letters; for a queue with a dead-letter exchange, how many were sent there. */
function deadFigure(row) {
  const [label, dead] = row.dead_letter_exchange ? ["Dead-lettered", row.died] : ["Dead letters", row.stats?.dead];
  return [label, count(dead), exact(dead), dead ? "warn" : ""];
}

/** The queues that received the dead letters of this queue, and how many were lost. */
function deadLettersOf(row) {
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
    `Dead letters of this queue: ${count(row.died)}, routed by ${exchange ? `the exchange ${exchange}` : "the default exchange"} to`,
    queues.length ? queues : " no queue",
    ".",
    lost ? ` ${count(lost)} were lost because no queue received them: declare the exchange, and bind a queue to it.` : "",
  );
}

const WORDS = { lease: "s", ttl: "s", dedup_window: "s", starvation: "s", history: "s" };

/** Settings and counters. */
function settingsTab(context) {
  return (body, signal) => {
    const chosen = facts();
    const counted = facts();
    body.append(
      h("div.grid2", panel("Settings", null, chosen.element), panel("Counters", null, counted.element)),
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
