// One record: its versions, two of them side by side, and dialogs to change and delete it.

import { del, enc, get, patch, path, post } from "./api.js";
import { ask, confirm, doing } from "./dialog.js";
import { h, refill, renew } from "./dom.js";
import { clock, json, plain } from "./format.js";
import { fields } from "./form.js";
import { msOf } from "./page_table.js";
import { badge, cells, head, panel } from "./parts.js";
import { rights } from "./rights.js";
import { go, link } from "./router.js";
import { table } from "./table.js";

/** The time of a version, to the millisecond: several may share a second. */
const stamp = (version) => `${clock(msOf(version))}.${String(msOf(version) % 1000).padStart(3, "0")}`;
const lines = (value) => (value === undefined ? "" : typeof value === "string" ? value : json(value, 2));

/** One side: every field; those that differ from the other side are marked. */
function side(label, version, other, mark) {
  if (!version) return panel(label, null, h("p.quiet", "No such version."));
  const when = h("span.quiet", stamp(version.version));
  if (version.deleted) return panel(label, when, badge("deleted", "bad"));
  if (!version.values) return panel(label, when, h("p.quiet", "Only the changes of this version are kept."));
  const names = [...new Set([...Object.keys(version.values), ...Object.keys(other?.values ?? {})])];
  return panel(
    label,
    when,
    h(
      "dl.facts",
      names.map((name) => {
        const text = lines(version.values[name]);
        const same = text === lines(other?.values?.[name]);
        const shown = version.values[name] === undefined ? "(not set)" : text;
        return [h("dt", name), h("dd.mono", same ? shown : h(mark, shown))];
      }),
    ),
  );
}

export function page(view) {
  const { name, key } = view.params;
  const at = `${path`/tables/${name}`}/records/${enc(key)}`;
  view.title(`${key} · ${name}`);
  let record = null;
  let versions = [];
  let chosen = { left: null, right: null };
  let changes = 0;
  const state = h("span");
  const sides = h("div.sides", { "aria-live": "polite" });
  const may = rights({ resource: "table", name });
  const writing = (button) => may.guard(button, "table_write");
  const change = writing(h("button", { type: "button", onclick: changeIt }, "Change…"));
  const remove = writing(h("button.danger", { type: "button", onclick: deleteIt }, "Delete…"));
  const back = writing(h("button", { type: "button", hidden: true, onclick: undelete }, "Undelete"));
  const radio = (which, row) =>
    h("input", {
      type: "radio",
      name: which,
      checked: String(chosen[which]) === String(row.version),
      "aria-label": `${which === "left" ? "Before" : "After"}: version of ${stamp(row.version)}`,
      onchange: () => ((chosen[which] = row.version), show()),
    });
  const list = table({
    label: "Versions",
    key: (row) => row.version,
    empty: "No versions.",
    columns: [
      {
        id: "when",
        label: "Version",
        main: true,
        nowrap: true,
        cell: (row) => ({ text: stamp(row.version), title: `version ${row.version}` }),
      },
      {
        id: "left",
        label: "Before",
        cell: (row) => ({ mark: `${row.version}|${chosen.left}`, node: radio("left", row) }),
      },
      {
        id: "right",
        label: "After",
        cell: (row) => ({ mark: `${row.version}|${chosen.right}`, node: radio("right", row) }),
      },
      {
        id: "what",
        label: "Changes",
        wide: true,
        cell: (row) => ({ mark: String(row.version), node: said(row) }),
      },
    ],
  });
  view.root.append(
    head(
      [
        h(
          "span.crumbs",
          h("a", { href: "#/tables" }, "Tables"),
          " / ",
          h("a", { href: link("tables", name) }, name),
          " / ",
        ),
        key,
        " ",
        state,
      ],
      change,
      remove,
      back,
    ),
    may.element,
    sides,
    h("section.panel.flush", h("header", h("h2", "Versions")), list.element),
  );

  function said(row) {
    if (row.deleted) return badge("deleted", "bad");
    if (row.kind === "add") return h("span.quiet", "created");
    if (!row.changes?.length) return h("span.quiet", row.kind ?? "no difference");
    return row.changes
      .slice(0, 5)
      .map((one, at) => [
        at ? ", " : "",
        h("code", one.path),
        ": ",
        h("del", plain(one.old).slice(0, 60)),
        " ",
        h("ins", plain(one.new).slice(0, 60)),
      ]);
  }

  function show() {
    const [left, right] = ["left", "right"].map((which) =>
      versions.find((one) => String(one.version) === String(chosen[which])),
    );
    renew(
      sides,
      [chosen.left, chosen.right, left?.values, right?.values].map(String).join() + json([left?.values, right?.values]),
      () =>
        versions.length > 1
          ? [side("Before", left, right, "del"), side("After", right, left, "ins")]
          : [side("Record", right, right, "ins")],
    );
    list.update(versions);
  }

  /** Load the record again after a change; responses to earlier requests are ignored. */
  function reload() {
    changes += 1;
    chosen = { left: null, right: null };
    polling.now();
  }

  async function changeIt() {
    if (!record) return;
    const edited = record; // not what the page loads while the dialog is open
    const form = fields([
      {
        name: "values",
        label: "Record (JSON)",
        kind: "json",
        rows: 14,
        span: true,
        required: true,
        autofocus: true,
        value: edited.values,
      },
    ]);
    await ask({
      title: `Change ${key}`,
      wide: true,
      fields: form,
      yes: "Save record",
      text: "Only fields that differ are written; null removes a value. The change is rejected if the record has been changed meanwhile.",
      work: async ({ values }) => {
        const changes = {};
        for (const field of new Set([...Object.keys(values), ...Object.keys(edited.values)])) {
          if (lines(values[field]) !== lines(edited.values[field])) changes[field] = values[field] ?? null;
        }
        if (!Object.keys(changes).length) throw new Error("Nothing was changed.");
        return patch(at, { changes: [json(changes)], if_version: edited.version });
      },
      said: "Record saved.",
    });
    reload();
  }

  async function deleteIt() {
    const effects = ["The record is marked as deleted and can be restored.", "The record is removed and cannot be restored."];
    const effect = h("span", effects[0]);
    const hard = h("input", {
      type: "checkbox",
      disabled: Boolean(may.lacks("table_erase")),
      title: may.lacks("table_erase"),
      onchange: () => (effect.textContent = effects[Number(hard.checked)]),
    });
    const done = await confirm({
      title: `Delete ${key}`,
      text: effect,
      details: h("label.row", hard, "Delete permanently, with its history"),
      yes: "Delete record",
      typed: key,
      when: hard,
      danger: true,
      work: async () => {
        await del(at, { hard: hard.checked ? true : null });
        return { hard: hard.checked };
      },
      said: `Record ${key} deleted.`,
    });
    if (done?.hard) go("tables", name);
    else if (done) {
      reload();
    }
  }

  async function undelete() {
    await doing(back, () => post(`${at}/undelete`), `Record ${key} restored.`);
    reload();
  }

  const polling = view.poll(
    async (signal) => {
      await may.refresh(signal);
      const before = changes;
      const [now, past] = await Promise.all([
        get(at, { include_deleted: true }, signal),
        get(`${at}/history`, null, signal).catch((error) => (error.status ? { versions: [] } : Promise.reject(error))),
      ]);
      if (before !== changes) return;
      record = now;
      versions = past.versions.length
        ? [...past.versions].sort((a, b) => (BigInt(b.version) > BigInt(a.version) ? 1 : -1))
        : [];
      // If earlier versions are not kept, the present one is complete nevertheless.
      const latest = versions.find((one) => String(one.version) === String(now.version));
      if (!latest) versions.unshift({ version: now.version, values: now.values, deleted: now.deleted, changes: [] });
      else latest.values ??= now.values;
      if (chosen.right === null) chosen = { right: versions[0].version, left: (versions[1] ?? versions[0]).version };
      renew(state, String(now.deleted), () => (now.deleted ? badge("deleted", "bad") : ""));
      change.hidden = remove.hidden = Boolean(now.deleted);
      back.hidden = !now.deleted;
      show();
    },
    { every: 4000 },
  );
}
