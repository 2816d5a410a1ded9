// Records of a log, browsed by sequence or by time, forwards and backwards.

import { get } from "./api.js";
import { doing } from "./dialog.js";
import { h, renew } from "./dom.js";
import { ago, bytes, iso, isBytes, plain, time } from "./format.js";
import { bytesOf, preview } from "./payload.js";
import { showMessage } from "./queue_messages.js";
import { table } from "./table.js";
import { localValue } from "./form.js";

const SIZE = 50;
const size = (row) =>
  isBytes(row.payload) ? bytesOf(row.payload).length : new TextEncoder().encode(plain(row.payload)).length;

/** The records of the log at this path: {element, from(sequence), known(stats), refuse(reason)}. */
export function recordsPanel(view, at) {
  let start = null;
  let shown = [];
  let stats = null;
  const sequence = h("input", {
    type: "text",
    inputmode: "numeric",
    "aria-label": "From sequence",
    placeholder: "sequence",
    class: "short",
    "data-filter": "",
  });
  const when = h("input", {
    type: "datetime-local",
    step: "1",
    "aria-label": "From time",
    value: localValue(Date.now() - 3600000),
  });
  const list = table({
    label: "Records",
    key: (row) => row.sequence,
    open: (row) =>
      showMessage(
        { id: row.sequence, key: row.key, headers: row.headers, payload: row.payload, size: size(row) },
        { kind: "Record", more: [["Written", `${time(row.timestamp)}, ${ago(row.timestamp)}`]] },
      ),
    empty: "No records in this range.",
    columns: [
      {
        id: "sequence",
        label: "Sequence",
        main: true,
        cell: (row) => ({ mark: String(row.sequence), node: h("span.mono", String(row.sequence)) }),
      },
      { id: "time", label: "Written", cell: (row) => ({ text: time(row.timestamp), title: iso(row.timestamp) }) },
      { id: "key", label: "Key", cell: (row) => plain(row.key) },
      {
        id: "payload",
        label: "Payload",
        wide: true,
        cell: (row) => ({ mark: preview(row.payload), node: h("span.preview", preview(row.payload)) }),
      },
      { id: "size", label: "Size", num: true, cell: (row) => bytes(size(row)) },
    ],
  });
  const older = h("button", { type: "button", onclick: () => back() }, "← Earlier");
  const newer = h(
    "button",
    { type: "button", onclick: () => from(Number(shown.at(-1)?.sequence ?? start ?? 0) + 1) },
    "Later →",
  );

  async function load(query) {
    const answer = await get(`${at}/records`, { count: SIZE, ...query }, view.signal);
    shown = query.reverse
      ? [...answer.records].sort((a, b) => Number(a.sequence) - Number(b.sequence))
      : answer.records;
    list.update(shown);
    older.disabled = !shown.length || Number(shown[0].sequence) <= Number(stats?.start ?? answer.start ?? 0);
    newer.disabled = !shown.length || Number(shown.at(-1).sequence) + 1 >= Number(stats?.end ?? answer.end ?? 0);
    return answer;
  }
  const from = (value) => doing(null, () => load({ start: (start = Number(value)) }));
  const back = () => from(Math.max(Number(stats?.start ?? 0), Number(shown[0]?.sequence ?? start ?? 0) - SIZE));
  const latest = () =>
    doing(null, () => load({ start: (start = Math.max(Number(stats?.start ?? 0), Number(stats?.end ?? 0) - SIZE)) }));
  const byTime = () => doing(null, () => load({ since: new Date(when.value).toISOString() }));

  const submit = (work) => (event) => {
    event.preventDefault();
    work();
  };
  const element = h(
    "section.panel.flush",
    { "aria-label": "Records" },
    h(
      "header",
      h("h2", "Records"),
      h(
        "form.row",
        { onsubmit: submit(() => /^\d+$/.test(sequence.value.trim()) && from(sequence.value.trim())) },
        sequence,
        h("button", { type: "submit" }, "Go to sequence"),
      ),
      h(
        "form.row",
        { onsubmit: submit(() => when.value && byTime()) },
        when,
        h("button", { type: "submit" }, "Go to time"),
      ),
      h("div.row", older, newer, h("button", { type: "button", onclick: latest }, "Latest")),
    ),
    list.element,
  );
  return {
    element,
    from,
    known(given) {
      const first = stats === null;
      stats = given;
      if (first) latest();
    },
    refuse(reason) {
      renew(element, reason, () => [
        h("header", h("h2", "Records")),
        h("p.empty", `${reason} The records are not shown.`),
      ]);
    },
  };
}
