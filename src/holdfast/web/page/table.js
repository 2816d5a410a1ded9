// Tables: rows keep their position and focus when values change; on a narrow screen they become cards.

import { append, h, refill } from "./dom.js";
import { count, exact, plural } from "./format.js";

const WORD_MAX = 24;
/** Whether a text has a word that is too long for one line; a browser also breaks lines after a hyphen. */
const isLong = (text) => text.split(/\s|(?<=-)/).some((word) => word.length > WORD_MAX);

/** A cell: a text, or {text, title, node, mark}. */
function fillCell(cell, column, row) {
  const shown = column.cell(row);
  const given =
    shown !== null && typeof shown === "object" && !(shown instanceof Node) && !Array.isArray(shown)
      ? shown
      : { node: shown };
  const mark =
    given.mark ??
    (given.node instanceof Node || Array.isArray(given.node) ? null : `${given.text ?? given.node}|${given.title}`);
  if (mark !== null && cell.dataset.mark === mark) return;
  if (mark === null) delete cell.dataset.mark;
  else cell.dataset.mark = mark;
  if (given.title) cell.title = given.title;
  else cell.removeAttribute("title");
  const node = given.node ?? given.text ?? "–";
  refill(cell, Array.isArray(node) ? h("span", node) : node); // on a phone a cell is a label and one element
  cell.classList.toggle("long", isLong(cell.textContent));
}

/**
 * A table. columns: [{id, label, cell(row), num, sort, main, wide}]; key(row); open(row) on Enter or a click on the row.
 * select: true adds checkboxes; `chosen()` returns the rows. onSort(sort, reverse) if the server sorts.
 */
export function table({
  label,
  columns,
  key,
  open,
  empty = "No entries.",
  select = false,
  onSort,
  sort,
  reverse,
  onChoose,
}) {
  const rows = new Map();
  const marked = new Set();
  let list = [];
  const state = { sort, reverse };
  const all =
    select && h("input", { type: "checkbox", "aria-label": "Select all", onchange: () => chooseAll(all.checked) });
  const heads = new Map();
  const pick = select && h("label", all, h("span.cards-only", "Select all"));
  const head = h("tr", select && h("th.pick", { scope: "col" }, pick), columns.map(headOf));
  const body = h("tbody");
  const nothing = h("p.empty", { hidden: true }, empty);
  const inner = h("table", { class: "cards" }, h("caption.unseen", label), h("thead", head), body);
  const element = h("div.scroll", { role: "region", "aria-label": label, tabindex: "-1" }, inner, nothing);
  inner.hidden = true;

  function headOf(column) {
    const th = h("th", { scope: "col", class: column.num ? "num" : null });
    heads.set(column.id, th);
    if (column.sort && onSort)
      append(
        th,
        h(
          "button.plain.sort",
          { type: "button", onclick: () => sortBy(column) },
          column.label,
          h("i", { "aria-hidden": "true" }),
        ),
      );
    else append(th, column.label || h("span.unseen", "Actions"));
    return th;
  }

  function sortBy(column) {
    state.reverse = state.sort === column.sort ? !state.reverse : Boolean(column.num);
    state.sort = column.sort;
    showSort();
    onSort(state.sort, state.reverse);
  }

  function showSort() {
    for (const column of columns) {
      if (!column.sort) continue;
      const now = column.sort === state.sort ? (state.reverse ? "descending" : "ascending") : "none";
      heads.get(column.id).setAttribute("aria-sort", now);
    }
  }

  function chooseAll(yes) {
    marked.clear();
    if (yes) list.forEach((row) => marked.add(String(key(row))));
    for (const [name, entry] of rows) entry.box.checked = marked.has(name);
    selectionChanged();
  }

  function selectionChanged() {
    if (!select) return;
    all.checked = list.length > 0 && marked.size === list.length;
    all.indeterminate = marked.size > 0 && marked.size < list.length;
    for (const [name, entry] of rows) entry.tr.classList.toggle("chosen", marked.has(name));
    onChoose?.(chosen());
  }

  function chosen() {
    return list.filter((row) => marked.has(String(key(row))));
  }

  function makeRow(name) {
    const entry = { row: null, cells: new Map() };
    entry.tr = h("tr", {
      class: open ? "opens" : null,
      onclick: (event) => {
        if (open && !event.target.closest("a, button, input, select, label") && !String(getSelection()))
          open(entry.row);
      },
      onkeydown: (event) => {
        if (event.target !== entry.tr) return;
        if (event.key === "Enter" && open) open(entry.row);
        else if (event.key === " " && select) entry.box.click();
        else return;
        event.preventDefault();
      },
    });
    if (select) {
      entry.box = h("input", {
        type: "checkbox",
        "aria-label": `Select ${name}`,
        onchange: () => {
          if (entry.box.checked) marked.add(name);
          else marked.delete(name);
          selectionChanged();
        },
      });
      entry.tr.append(h("td.pick", entry.box));
    }
    for (const column of columns) {
      const cell = h(column.main ? "th" : "td", {
        scope: column.main && "row",
        class:
          [column.num && "num", column.wide && "wide", column.nowrap && "nowrap", column.label === "" && "do"]
            .filter(Boolean)
            .join(" ") || null,
        "data-label": column.label,
      });
      entry.cells.set(column.id, cell);
      entry.tr.append(cell);
    }
    return entry;
  }

  function update(given) {
    list = given;
    const kept = new Set();
    let before = null;
    for (const row of given) {
      const name = String(key(row));
      kept.add(name);
      let entry = rows.get(name);
      if (!entry) rows.set(name, (entry = makeRow(name)));
      entry.row = row;
      for (const column of columns) fillCell(entry.cells.get(column.id), column, row);
      // A row with a link gets the focus through it; any other row can get it itself.
      if (!entry.tr.querySelector("a, button")) entry.tr.tabIndex = 0;
      const place = before ? before.nextSibling : body.firstChild;
      if (place !== entry.tr) body.insertBefore(entry.tr, place);
      before = entry.tr;
    }
    for (const [name, entry] of rows) {
      if (kept.has(name)) continue;
      entry.tr.remove();
      rows.delete(name);
      marked.delete(name);
    }
    inner.hidden = given.length === 0;
    nothing.hidden = given.length > 0;
    selectionChanged();
  }

  showSort();
  return {
    element,
    update,
    chosen,
    clear: () => chooseAll(false),
    get rows() {
      return list;
    },
  };
}

/** Move through the rows of the table that has the focus, or of the first on the page. */
export function moveRow(step) {
  const here = document.activeElement?.closest("tbody tr");
  const scope = here?.closest("tbody") ?? document.querySelector("main table:not([hidden]) tbody, main .nodes");
  if (!scope) return false;
  const rows = [...scope.querySelectorAll("tr")].filter((row) => row.offsetParent !== null);
  const next = rows[here ? rows.indexOf(here) + step : step > 0 ? 0 : rows.length - 1];
  const target = next && (next.tabIndex === 0 ? next : next.querySelector("a, button"));
  target?.focus();
  target?.scrollIntoView({ block: "nearest" });
  return Boolean(target);
}

/** Controls for the pages of a long list. */
export function pager(onPage) {
  const text = h("span.quiet", { role: "status" });
  const back = h("button", { type: "button", onclick: () => onPage(now.page - 1) }, "← Previous");
  const on = h("button", { type: "button", onclick: () => onPage(now.page + 1) }, "Next →");
  const now = { page: 1 };
  const element = h("nav.pager", { "aria-label": "Pages of the list" }, back, text, on);
  return {
    element,
    update({ page, page_count: pages, filtered_count: filtered, total_count: total }) {
      now.page = page;
      back.disabled = page <= 1;
      on.disabled = page >= pages;
      back.hidden = on.hidden = pages <= 1;
      const entries = filtered === total ? plural(total, "entry", "entries") : `${count(filtered)} of ${plural(total, "entry", "entries")}`;
      text.textContent = pages > 1 ? `Page ${page} of ${pages} · ${entries}` : entries;
      text.title = exact(filtered);
    },
  };
}
