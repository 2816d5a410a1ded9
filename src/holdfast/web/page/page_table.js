// Records of a table: filtered, ordered, now or as of an earlier time.

import { get, path, post } from "./api.js";
import { ask } from "./dialog.js";
import { h, refill, renew } from "./dom.js";
import { clock, count, iso, json, plain, rough, since } from "./format.js";
import { fields } from "./form.js";
import { badge, crumbs, head } from "./parts.js";
import { rights } from "./rights.js";
import { go, link } from "./router.js";
import { table } from "./table.js";

const SIZE = 100;
const COLUMNS_MOST = 8;
/** A version is 44 bits of Unix milliseconds and 20 bits of count. */
export const msOf = (version) => (version === null || version === undefined ? null : Number(BigInt(version) >> 20n));
/** A value in a cell: a time without its zero seconds. */
const shown = (value) =>
  plain(value)
    .slice(0, 200)
    .replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(:00)?Z$/, "$1 $2")
    .replace(/^(\[\]|\{\})$/, "–");
const keyText = (key) => (Array.isArray(key) ? key.map(plain).join(", ") : plain(key));
/** Generated keys differ only near their end. */
const shortKey = (text) => (text.length > 16 ? `…${text.slice(-10)}` : text);
export const recordKey = (key) => (typeof key === "object" && key !== null ? json(key) : String(key));

const EXAMPLE = { int: 0, float: 0, bool: false, list: [], set: [], dict: {} };
const kindOf = (type) => String(type?.kind ?? type ?? "").toLowerCase();

async function addRecord(at, about, done) {
  const example = Object.fromEntries(
    (about.fields ?? []).map((one) => [
      one.name,
      Object.entries(EXAMPLE).find(([kind]) => kindOf(one.type).startsWith(kind))?.[1] ?? "",
    ]),
  );
  const form = fields([
    {
      name: "record",
      label: "Record (JSON)",
      kind: "json",
      rows: 12,
      span: true,
      required: true,
      autofocus: true,
      value: example,
    },
  ]);
  const added = await ask({
    title: `Add a record to ${about.name}`,
    wide: true,
    fields: form,
    yes: "Add record",
    work: async ({ record }) => {
      const { outcomes } = await post(`${at}/records`, { records: [record] });
      const [one] = outcomes;
      const errors = one.errors?.length
        ? one.errors.map((each) => (typeof each === "string" ? each : plain(each))).join("; ")
        : (one.reason ?? one.error);
      if (errors) throw new Error(errors);
      return one;
    },
    said: (one) => `Record ${keyText(one.key)} added.`,
  });
  if (added) done();
}

/** A slider over the time of the table's versions; calls `onChange` with a time (ISO), or null for now. */
function timeSlider(onChange) {
  const range = h("input", {
    type: "range",
    min: 0,
    max: 1000,
    value: 1000,
    "aria-label": "As of",
    oninput: showTime,
    onchange: chosen,
  });
  const text = h("output", "now");
  const back = h(
    "button.small",
    { type: "button", hidden: true, onclick: () => ((range.value = 1000), showTime(), chosen()) },
    "Now",
  );
  let first = null;
  const at = () =>
    first === null || Number(range.value) >= 1000 ? null : first + ((Date.now() - first) * Number(range.value)) / 1000;
  function showTime() {
    const when = at();
    text.textContent = when === null ? "now" : clock(when);
    range.setAttribute("aria-valuetext", text.textContent);
    back.hidden = when === null;
  }
  function chosen() {
    const when = at();
    onChange(when === null ? null : new Date(when).toISOString());
  }
  return {
    element: h("label.row.asof", h("span.quiet", "As of"), range, text, back),
    span(from) {
      first ??= from;
    },
  };
}

export function page(view) {
  const { name } = view.params;
  const at = path`/tables/${name}`;
  view.title(name);
  let about = null;
  let list = null;
  let asOf = null;
  let next = null;
  let rows = [];
  const place = h("div.panel.flush");
  const facts = h("p.quiet");
  const wrong = h("p.notice.bad", { role: "alert", hidden: true });
  const where = h("input", {
    type: "search",
    placeholder: "Where: city == 'Graz' and orders > 3   ( / )",
    "aria-label": "Where",
    "data-filter": "",
    value: view.query.get("where") ?? "",
    spellcheck: "false",
    class: "grow",
  });
  const order = h("input", {
    type: "text",
    placeholder: "Order: city, -orders",
    "aria-label": "Order",
    value: view.query.get("order") ?? "",
    spellcheck: "false",
    list: "order-fields",
  });
  const suggestions = h("datalist#order-fields");
  const deleted = h("input", {
    type: "checkbox",
    checked: view.query.get("deleted") === "true",
    onchange: () => again(),
  });
  const more = h("button", { type: "button", hidden: true, onclick: () => load(next) }, "Load more");
  const slider = timeSlider((when) => {
    asOf = when;
    again();
  });
  const search = h(
    "form.row",
    { role: "search", onsubmit: (event) => (event.preventDefault(), again()) },
    where,
    order,
    suggestions,
    h("label.row", deleted, "Include deleted"),
    h("button", { type: "submit" }, "Search"),
  );
  const may = rights({ resource: "table", name });
  const add = may.guard(
    h("button.primary", { type: "button", onclick: () => addRecord(at, about, again) }, "Add a record"),
    "table_write",
  );
  view.root.append(
    head(
      crumbs("tables", "Tables", name),
      add,
    ),
    may.element,
    facts,
    search,
    slider.element,
    wrong,
    place,
    h("div.row", more),
  );

  function columns() {
    const named = about.fields.slice(0, COLUMNS_MOST);
    return [
      {
        id: "key",
        label: "Key",
        main: true,
        cell: (row) => ({
          mark: recordKey(row.key),
          title: keyText(row.key),
          node: h("a.key", { href: link("tables", name, recordKey(row.key)) }, shortKey(keyText(row.key))),
        }),
      },
      ...named.map((one) => ({
        id: `f ${one.name}`,
        label: one.name,
        wide: ["str", "dict", "list"].some((kind) => kindOf(one.type).startsWith(kind)),
        nowrap: ["date", "time", "uuid"].some((kind) => kindOf(one.type).startsWith(kind)),
        num: ["int", "float", "decimal"].some((kind) => kindOf(one.type).startsWith(kind)),
        cell: (row) => ({ text: shown(row.values?.[one.name]), title: plain(row.values?.[one.name]) }),
      })),
      {
        id: "version",
        label: "Changed",
        num: true,
        cell: (row) => ({
          mark: `${row.version}${row.deleted}${rough(since(msOf(row.version) * 1e6))}`,
          title: iso(msOf(row.version) * 1e6),
          node: [row.deleted ? badge("deleted", "bad") : "", " ", `${rough(since(msOf(row.version) * 1e6))} ago`],
        }),
      },
    ];
  }

  async function load(start) {
    view.keep({ where: where.value, order: order.value, deleted: deleted.checked || null });
    try {
      const answer = await get(
        `${at}/records`,
        {
          where: where.value,
          order: order.value,
          limit: SIZE,
          cursor: start,
          as_of: asOf,
          include_deleted: deleted.checked || null,
        },
        view.signal,
      );
      rows = start ? [...rows, ...answer.records] : answer.records;
      next = answer.next;
      more.hidden = next === null || next === undefined;
      list.update(rows);
      wrong.hidden = true;
    } catch (error) {
      if (error.name === "AbortError") return;
      wrong.hidden = false;
      wrong.textContent = error.message;
    }
  }
  const again = () => load(null);

  view.poll(
    async (signal) => {
      await may.refresh(signal);
      about = await get(at, null, signal);
      slider.span(about.first_time ? Date.parse(about.first_time) : Date.now() - 3600000);
      renew(
        facts,
        [about.count, about.deleted, about.indexes, about.key, about.keep_all_versions],
        () =>
          `${count(about.count)} records, ${count(about.deleted)} deleted. Key: ${(about.key ?? []).join(", ") || "generated"}. Indexes: ${(about.indexes ?? []).map((one) => (typeof one === "string" ? one : one.name)).join(", ") || "none"}. ${about.keep_all_versions ? "All versions are kept." : "Only the latest versions are kept: earlier ones cannot be shown."}`,
      );
      slider.element.hidden = !about.keep_all_versions;
      if (!list) {
        list = table({
          label: `Records of ${name}`,
          columns: columns(),
          key: (row) => recordKey(row.key),
          open: (row) => go("tables", name, recordKey(row.key)),
          empty: "No matching records.",
        });
        refill(place, list.element);
        refill(
          suggestions,
          about.fields.map((one) => h("option", { value: one.name })),
        );
      }
      // Figures are refreshed; records are not, except the first page of the present state.
      if (asOf === null && rows.length <= SIZE) await again();
    },
    { every: 4000 },
  );
}
