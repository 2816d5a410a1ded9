// One log: segments and tailers as a bar, records as a list; old segments can be removed.

import { del, enc, get, path, post, session } from "./api.js";
import { ask, confirm, dialog, doing } from "./dialog.js";
import { h, renew } from "./dom.js";
import { bytes, count, duration, exact, fromStore, json, plain, plural, rough, short, since, time } from "./format.js";
import { fields } from "./form.js";
import { cells, crumbs, facts, figures, head, panel } from "./parts.js";
import { recordsPanel } from "./log_records.js";
import { forbidden, rights } from "./rights.js";
import { table } from "./table.js";

/** The name of a tailer; for that of a queue, the queue's. */
function nameOf(tailer) {
  return tailer.queue ? `queue ${tailer.queue.name}` : tailer.name.replace("\x1f", " / ");
}

/** A setting with its unit. */
function settingOf(label, value) {
  if (value === null) return "–";
  if (["retention", "local_retention"].includes(label))
    return Object.entries(value)
      .filter(([, each]) => each !== null)
      .map(([name, each]) => `${name.replaceAll("_", " ")} ${settingOf(name, each)}`)
      .join(", ");
  if (["max_age", "flush_interval", "roll_interval"].includes(label)) return duration(value);
  return label === "max_message" || label.endsWith("_bytes") ? bytes(value) : plain(value);
}

function bar(segments, stats, tailers) {
  const whole = Math.max(1, Number(stats.end) - Number(stats.start));
  const pieces = segments.map((one) =>
    h("button", {
      type: "button",
      "aria-label": `Segment ${one.name}: ${plural(one.records, "record")} from ${exact(one.first)}, ${bytes(one.bytes)}`,
      title: `${one.name}\n${exact(one.records)} records from ${exact(one.first)}\n${bytes(one.bytes)}${one.remote ? " in the replica" : ""}, created ${time(one.created)}`,
      "data-first": one.first,
      style: { flex: `${Math.max(Number(one.records), whole / 400)} 1 0` },
    }),
  );
  const marks = tailers.map((one) =>
    h("i", {
      title: `${nameOf(one)} at ${exact(one.position)}, ${exact(one.lag)} behind`,
      style: { left: `${Math.min(100, Math.max(0, ((Number(one.position) - Number(stats.start)) / whole) * 100))}%` },
    }),
  );
  return [
    h("div.segments", { "data-arrows": "" }, pieces),
    h("div.places", { "aria-hidden": "true" }, marks),
    h("div.ruler", h("span", exact(stats.start)), h("span", `${exact(stats.end)} (end)`)),
  ];
}

async function compact(at, name, done) {
  const form = fields([
    { name: "max_age", label: "Maximum age, seconds", kind: "number" },
    { name: "max_bytes", label: "Maximum size, bytes", kind: "whole" },
    { name: "max_segments", label: "Maximum segments", kind: "whole" },
    { name: "min_segments", label: "Minimum segments", kind: "whole" },
    { name: "force", label: "Also remove what queues and tailers still need", kind: "check" },
  ]);
  const chosen = {};
  const preview = await ask({
    title: `Compact ${name}`,
    fields: form,
    yes: "Preview",
    text: "Removes whole segments, oldest first, until all limits are met. Nothing is removed before you have confirmed the preview.",
    work: (values) => post(`${at}/compact`, { ...Object.assign(chosen, values), dry_run: true }),
  });
  if (!preview) return;
  const { removed, records, bytes: size, held_back: held, left } = preview;
  const details = facts();
  details.update([
    ...(removed ? [["Records", exact(records)], ["Size", bytes(size)]] : []),
    ["Remaining", `${plural(left.segments - removed, "segment")}, ${bytes(left.bytes - size)}`],
  ]);
  const number = plural(held, removed ? "more segment" : "segment");
  const kept = held ? h("p", `${number} kept, because queues or tailers still need them.`) : null;
  if (!removed) {
    const shown = dialog({
      title: `Compact ${name}`,
      body: h(
        "div.stack",
        h("p", "Nothing would be removed."),
        kept,
        details.element,
        h("div.actions", h("button", { type: "button", onclick: () => shown.close() }, "Close")),
      ),
    });
    return;
  }
  await confirm({
    title: `Compact ${name}`,
    text: `${plural(removed, "segment")} would be removed.`,
    details: h("div.stack", kept, details.element),
    yes: "Remove segments",
    danger: true,
    work: () => post(`${at}/compact`, { ...chosen, dry_run: false }),
    said: (answer) => `${plural(answer.removed, "segment")} removed from ${name}.`,
  });
  done();
}

export function page(view) {
  const at = path`/logs/${view.params.name}`;
  const { vhost, name } = fromStore(view.params.name);
  view.title(name);
  const now = figures();
  const drawing = h("div");
  const used = h("p.quiet");
  const settings = facts();
  const verdict = h("div", { role: "status" });
  const may = rights({ resource: "log", name: view.params.name });
  const verify = may.guard(h("button", { type: "button", onclick: verifyIt }, "Verify"), "monitor");
  const shorten = may.guard(
    h("button.danger", { type: "button", onclick: () => compact(at, name, () => polling.now()) }, "Compact…"),
    "log_shorten",
  );
  /** The permission that is missing to delete a tailer; its owner always may. */
  const keeps = (row) => (row.owner && row.owner === session.who?.name ? null : may.lacks("log_tailer"));
  const owned = (row) => (row.owner ? `${nameOf(row)} (owner: ${row.owner})` : nameOf(row));
  const tailers = table({
    label: "Tailers",
    key: (row) => row.name,
    empty: "No tailers.",
    columns: [
      {
        id: "name",
        label: "Tailer",
        main: true,
        wide: true,
        cell: (row) =>
          row.queue
            ? cells.hosted(row.queue.vhost, nameOf(row), "queues", row.queue.vhost, row.queue.name)
            : { text: short(owned(row)), title: owned(row) },
      },
      { id: "position", label: "Position", num: true, cell: (row) => ({ text: exact(row.position) }) },
      { id: "lag", label: "Lag", num: true, cell: (row) => cells.count(row.lag) },
      { id: "at", label: "Updated", num: true, cell: (row) => cells.age(row.committed_at) },
      {
        id: "do",
        label: "",
        cell: (row) => ({
          mark: `${row.name}|${Boolean(row.queue)}|${keeps(row)}`,
          // The position of a queue is deleted only with the queue.
          node: row.queue
            ? ""
            : h("button.small.danger", { ...forbidden(keeps(row)), onclick: () => forget(row) }, "Delete…"),
        }),
      },
    ],
  });
  const records = recordsPanel(view, at);
  drawing.addEventListener("click", (event) => {
    const first = event.target.closest("[data-first]")?.dataset.first;
    if (first !== undefined) records.from(first);
  });
  view.root.append(
    head(
      crumbs("logs", "Logs", name, vhost),
      verify,
      shorten,
    ),
    may.element,
    verdict,
    now.element,
    h(
      "div.grid2",
      panel("Segments", null, drawing, used),
      h("section.panel.flush", h("header", h("h2", "Tailers")), tailers.element),
    ),
    records.element,
    panel("Settings", null, settings.element),
  );

  async function verifyIt() {
    const answer = await doing(verify, () => post(`${at}/verify`));
    if (!answer) return;
    const text = answer.ok
      ? `Intact: ${plural(answer.records, "record")} in ${plural(answer.segments, "segment")}, ${bytes(answer.bytes)} checked.`
      : `Damaged: ${answer.damage.map((one) => (typeof one === "string" ? one : json(one))).join("; ")}`;
    renew(verdict, text + Date.now(), () => h(`p.notice.${answer.ok ? "ok" : "bad"}`, text));
  }

  async function forget(row) {
    await confirm({
      title: `Delete tailer ${nameOf(row)}`,
      text: `This deletes its position (${exact(row.position)}, ${plural(row.lag, "record")} behind). Retention no longer waits for it; a tailer of this name starts from the beginning.`,
      yes: "Delete tailer",
      danger: true,
      work: () => del(`${at}/tailers/${enc(row.name)}`),
      said: `Tailer ${nameOf(row)} deleted.`,
    });
    polling.now();
  }

  const polling = view.poll(async (signal) => {
    await may.refresh(signal);
    const { stats, segments, tailers: readers, settings: chosen, queues } = await get(at, null, signal);
    now.update([
      ["Records", count(stats.records), exact(stats.records)],
      ["Size", bytes(stats.bytes), `${exact(stats.bytes)} B`],
      ...(Number(stats.remote_bytes)
        ? [
            ["On this disk", bytes(Number(stats.bytes) - Number(stats.remote_bytes))],
            ["In the replica", bytes(stats.remote_bytes), `${plural(stats.remote_segments, "segment")}`],
          ]
        : []),
      ["Segments", count(stats.segments)],
      ["Oldest", rough(since(stats.first_timestamp)), time(stats.first_timestamp)],
      ["Newest", rough(since(stats.last_timestamp)), time(stats.last_timestamp)],
      ["Damage", count(stats.damage), "", stats.damage ? "warn" : ""],
    ]);
    renew(drawing, [segments, readers, stats.end], () => bar(segments, stats, readers));
    renew(used, [queues], () =>
      queues?.length
        ? [
            "Queues on this log: ",
            queues.map((one, place) => [
              place ? ", " : "",
              cells.hosted(one.vhost, one.name, "queues", one.vhost, one.name).node,
            ]),
          ]
        : "No queue uses this log.",
    );
    tailers.update(readers);
    settings.update(
      Object.entries(chosen ?? {}).map(([label, value]) => [
        label.replaceAll("_", " "),
        settingOf(label, value),
      ]),
    );
    if (may.lacks("log_read")) records.refuse(may.lacks("log_read"));
    else records.known(stats);
  });
}
