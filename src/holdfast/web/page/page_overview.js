// Overview: totals, rates and memory over time, alarms, listeners and disk.

import { get } from "./api.js";
import { chart } from "./chart.js";
import { h, renew } from "./dom.js";
import { bytes, count, duration, exact, json, rate } from "./format.js";
import { choice, facts, figures, head, panel } from "./parts.js";
import { replicaPanel } from "./replica.js";

// The last minutes, stored while the tab is open: the server's history has larger steps.
const LIVE = {
  times: [],
  series: { put: [], deliver: [], ack: [], ready: [], leased: [], delayed: [], resident: [], bodies: [], replica_lag: [] },
};
const LIVE_MS = 5 * 60 * 1000;

function note(overview) {
  LIVE.times.push(Date.now());
  const { totals, rates, memory } = overview;
  const now = {
    ...rates,
    ready: totals.ready,
    leased: totals.leased,
    delayed: totals.delayed,
    resident: memory.resident,
    bodies: memory.bodies,
    replica_lag: overview.replica?.lag_seconds ?? null,
  };
  for (const [name, list] of Object.entries(LIVE.series)) {
    list.push(now[name] ?? null);
  }
  while (LIVE.times.length && LIVE.times[0] < Date.now() - LIVE_MS)
    [LIVE.times, ...Object.values(LIVE.series)].forEach((list) => list.shift());
}

/** Load the samples that the server took before this tab was opened. */
async function begin(signal) {
  const { times, series } = await get("/history", { range: "1h" }, signal).catch((error) =>
    error.status ? { times: [], series: {} } : Promise.reject(error),
  );
  times.forEach((when, at) => {
    if (when < Date.now() - LIVE_MS || Object.values(series).every((list) => list[at] === null)) return;
    LIVE.times.push(when);
    for (const [name, list] of Object.entries(LIVE.series)) list.push(series[name]?.[at] ?? null);
  });
}

function gauge(used, limit, kind) {
  const part = limit ? Math.min(1, used / limit) : 0;
  return h(
    `div.gauge${kind ? `.${kind}` : ""}`,
    { role: "img", "aria-label": `${Math.round(part * 100)} percent` },
    h("i", { style: { width: `${part * 100}%` } }),
  );
}

/** Alarms and warnings: [kind, text]. */
function alarms({ memory, disk, warnings = [], alarms: ofReplica = [] }) {
  const found = [];
  if (memory.alarm === "memory")
    found.push([
      "Alarm",
      `Memory: the process uses ${bytes(memory.resident)}, more than the limit of ${bytes(memory.limit)}; publishers are blocked.`,
    ]);
  if (memory.alarm === "disk" || (disk.limit && disk.free < disk.limit))
    found.push([
      "Alarm",
      `Disk: ${bytes(disk.free)} are free, less than the limit of ${bytes(disk.limit)}; publishers are blocked.`,
    ]);
  if (memory.alarm === "replica")
    found.push([
      "Alarm",
      "Replica: the bucket does not confirm what was published; publishers are blocked.",
    ]);
  for (const { text } of ofReplica) found.push(["Alarm", `Replica: ${text}.`]);
  return [...found, ...warnings.map((text) => ["Warning", text])];
}

export function page(view) {
  view.title("Overview");
  const totals = figures();
  const parts = figures();
  const state = h("div.stack");
  const server = facts();
  const listeners = h("div");
  const usage = h("div.stack");
  const rates = chart({
    label: "Messages per second",
    series: [
      { id: "put", label: "put" },
      { id: "deliver", label: "delivered" },
      { id: "ack", label: "acked" },
    ],
    format: rate,
  });
  const depth = chart({
    label: "Messages in queues",
    series: [
      { id: "ready", label: "ready" },
      { id: "leased", label: "leased" },
      { id: "delayed", label: "delayed" },
    ],
  });
  const memory = chart({
    label: "Memory",
    series: [
      { id: "resident", label: "process" },
      { id: "bodies", label: "bodies" },
    ],
    format: bytes,
    binary: true,
  });
  const replica = replicaPanel();
  let range = view.query.get("range") ?? "live";
  const ranges = choice(
    "Time range of the charts",
    [
      ["live", "Live"],
      ["1h", "1 h"],
      ["24h", "24 h"],
      ["7d", "7 d"],
    ],
    range,
    (next) => {
      range = next;
      view.keep({ range: next === "live" ? null : next });
      kept = null;
      polling.now();
    },
  );
  let kept = null;
  view.root.append(
    head("Overview", ranges),
    state,
    totals.element,
    rates.element,
    h("div.grid2", depth.element, memory.element),
    replica.element,
    h(
      "div.grid3",
      panel("Objects", null, parts.element),
      panel("Memory and disk", null, usage),
      panel("Server", null, server.element, h("h3", "Listeners"), listeners),
    ),
  );

  async function charts(signal) {
    if (range !== "live" && (!kept || kept.range !== range || Date.now() - kept.asked > 10000)) {
      kept = { ...(await get("/history", { range }, signal)), range, asked: Date.now() };
    }
    const { times, series } = range === "live" ? LIVE : kept;
    const from = range === "live" ? Math.max(times[0], Math.min(times.at(-1) - 60000, times[0])) : null;
    for (const one of [rates, depth, memory, replica.chart]) one.update(times, series, from);
  }

  const polling = view.poll(async (signal) => {
    const now = await get("/overview", null, signal);
    if (!LIVE.times.length) await begin(signal);
    note(now);
    const { totals: sum, rates: speed, counts, disk } = now;
    totals.update([
      ["Ready", count(sum.ready), exact(sum.ready)],
      ["Leased", count(sum.leased), exact(sum.leased)],
      ["Unacked", count(sum.unacked), `${exact(sum.unacked)} of the leased messages, delivered over AMQP`],
      ["Delayed", count(sum.delayed), exact(sum.delayed)],
      ["Dead letters", count(sum.dead), exact(sum.dead), sum.dead ? "warn" : ""],
      ["Put", rate(speed.put), String(speed.put)],
      ["Delivered", rate(speed.deliver), String(speed.deliver)],
      ["Acked", rate(speed.ack), String(speed.ack)],
    ]);
    const names = {
      queues: "Queues",
      exchanges: "Exchanges",
      connections: "Connections",
      channels: "Channels",
      consumers: "Consumers",
      logs: "Logs",
      tables: "Tables",
      vhosts: "Virtual hosts",
    };
    parts.update(Object.entries(names).map(([name, label]) => [label, count(counts[name]), exact(counts[name])]));
    const found = alarms(now);
    renew(state, found, () =>
      found.map(([kind, text]) => h("p.notice.bad", { role: "alert" }, h("strong", `${kind}. `), text)),
    );
    showUsage(now, disk);
    replica.update(now);
    server.update([
      ["Version", `Holdfast ${now.version}, Python ${now.python}`],
      ["Node", now.node],
      ["Data", h("code", now.data)],
      ["Uptime", duration(Math.floor(now.uptime))],
      ["Alarms", found.length ? `${found.length}, see above` : "none"],
    ]);
    renew(listeners, now.listeners, () =>
      h(
        "dl.facts",
        now.listeners.map((one) => [
          h("dt", one.protocol),
          h("dd", h("code", `${one.host}:${one.port}`), one.tls ? " with TLS" : ""),
        ]),
      ),
    );
    await charts(signal);
  });

  function showUsage({ memory: held }, disk) {
    const mark = [held.resident, held.limit, held.bodies, held.bodies_limit, disk]
      .map((one) => json(one))
      .join();
    renew(usage, mark, () => [
      h(
        "div",
        h(
          "div.row",
          h("span.grow", "Process"),
          h("b", { title: exact(held.resident) }, bytes(held.resident)),
          held.limit ? h("span.quiet", `of ${bytes(held.limit)}`) : null,
        ),
        gauge(held.resident, held.limit, held.alarm === "memory" ? "bad" : ""),
      ),
      h(
        "div",
        h(
          "div.row",
          h("span.grow", "Message bodies"),
          h("b", { title: exact(held.bodies) }, bytes(held.bodies)),
          held.bodies_limit ? h("span.quiet", `of ${bytes(held.bodies_limit)}`) : null,
        ),
        gauge(held.bodies, held.bodies_limit, ""),
      ),
      h(
        "div",
        h(
          "div.row",
          h("span.grow", "Store on disk"),
          h("b", { title: exact(disk.used) }, bytes(disk.used)),
          h("span.quiet", `${bytes(disk.free)} free`),
        ),
        gauge(disk.used, disk.used + disk.free, disk.limit && disk.free < disk.limit ? "bad" : ""),
      ),
    ]);
  }
}
