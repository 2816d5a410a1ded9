// Charts: lines over time, with a crosshair for pointer and keyboard, and the same data as a table.

import { h, refill, s } from "./dom.js";
import { clock, count } from "./format.js";

const TOP = 8;
const BOTTOM = 20;
const RIGHT = 10;
/** Labels without a decimal that is zero: 64 MiB, not 64.0 MiB. */
const short = (text) => text.replace(/\.0(?=\D|$)/, "");

/** Round steps for an axis from 0 to `most`; binary ones for bytes. */
export function steps(most, binary = false, wanted = 4) {
  if (!(most > 0)) return [0, 1];
  const base = binary
    ? 1024 ** Math.max(0, Math.floor(Math.log(most / wanted) / Math.log(1024)))
    : 10 ** Math.floor(Math.log10(most / wanted));
  const multiples = binary ? [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] : [1, 2, 5, 10];
  const step = base * (multiples.find((one) => most / (base * one) <= wanted) ?? multiples.at(-1));
  const found = [];
  for (let value = 0; value < most + step * 0.999; value += step) found.push(value);
  return found;
}

/** Times for an axis, in round steps of local time. */
export function timeSteps(from, to, most) {
  const SECOND = 1000;
  const sizes = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000,
    7776000, 31536000,
  ];
  const step = SECOND * (sizes.find((size) => (to - from) / (size * SECOND) <= most) ?? sizes.at(-1));
  const shift = new Date(from).getTimezoneOffset() * 60000;
  const found = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to && found.length < 40; at += step)
    found.push(at);
  const label = (at) =>
    step >= 86400 * SECOND
      ? clock(at).slice(5, 10)
      : to - from > 86400 * SECOND
        ? clock(at, { seconds: false }).slice(5)
        : clock(at, { day: false, seconds: step < 60 * SECOND });
  return found.map((at) => ({ at, label: label(at) }));
}

/** A chart. series: [{id, label}]; format(value); update(times in ms, {id: [values or null]}). */
export function chart({ label, series, format = count, binary = false, height = 170, area = true, limit = null }) {
  const LEFT = binary ? 56 : 52;
  const values = new Map(series.map((one) => [one.id, h("b", "–")]));
  const moment = h("span.at", { role: "status" });
  const legend = h(
    "div.legend",
    series.map((one, at) =>
      h(
        "span",
        s("svg", { viewBox: "0 0 18 8", "aria-hidden": "true" }, s(`line.c${at}`, { x1: 0, x2: 18, y1: 4, y2: 4 })),
        one.label,
        values.get(one.id),
      ),
    ),
    moment,
  );
  const svg = s("svg", {
    height,
    role: "img",
    tabindex: "0",
    "data-arrows": "",
    "aria-label": `${label}: a chart; arrow keys read the values`,
  });
  const none = h("div.none", { hidden: true }, "No data yet.");
  const button = h("button.small", { type: "button", "aria-expanded": "false", onclick: toggle }, "Show as table");
  const other = h("div.alternative", { hidden: true });
  const frame = h("div.chart", svg, none);
  const element = h(
    "section.panel",
    { "aria-label": label },
    h("header", h("h2", label), button),
    legend,
    frame,
    other,
  );
  let data = { times: [], values: {} };
  let cursor = null;
  let scale = null;

  function toggle() {
    other.hidden = !other.hidden;
    button.setAttribute("aria-expanded", String(!other.hidden));
    button.textContent = other.hidden ? "Show as table" : "Hide table";
    fillTable();
  }

  function fillTable() {
    if (other.hidden) return;
    const rows = data.times
      .map((_, at) => at)
      .filter((at) => series.some((one) => value(one, at) !== null))
      .reverse()
      .slice(0, 120);
    refill(
      other,
      h(
        "table",
        h("caption.unseen", label),
        h(
          "thead",
          h(
            "tr",
            h("th", { scope: "col" }, "Time"),
            series.map((one) => h("th.num", { scope: "col" }, one.label)),
          ),
        ),
        h(
          "tbody",
          rows.map((at) =>
            h(
              "tr",
              h("td", clock(data.times[at])),
              series.map((one) => h("td.num", format(value(one, at)))),
            ),
          ),
        ),
      ),
    );
  }

  const value = (one, at) => data.values[one.id]?.[at] ?? null;

  function draw() {
    const width = svg.clientWidth || 600;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const { times } = data;
    const known = series.flatMap((one) => (data.values[one.id] ?? []).filter((each) => each !== null));
    none.hidden = known.length > 0;
    const top = Math.max(...(known.length ? known : [0]), 0);
    const marks = steps(top, binary);
    const high = marks.at(-1);
    const from = data.from ?? times[0] ?? Date.now() - 60000;
    const to = Math.max(times.at(-1) ?? 0, from + 1);
    const x = (at) => LEFT + ((at - from) / (to - from)) * (width - LEFT - RIGHT);
    const y = (each) => height - BOTTOM - (each / high) * (height - TOP - BOTTOM);
    scale = { x, y, width };
    const grid = s(
      "g.lines",
      marks.map((each) => s("line", { x1: LEFT, x2: width - RIGHT, y1: Math.round(y(each)), y2: Math.round(y(each)) })),
    );
    const left = marks.map((each) =>
      s("text", { x: LEFT - 8, y: y(each) + 4, "text-anchor": "end" }, short(format(each))),
    );
    const below = times.length > 1 ? timeSteps(from, to, Math.max(2, width / 110)) : [];
    const bottom = below.map((one) =>
      s(
        "text",
        { x: Math.min(Math.max(x(one.at), LEFT + 16), width - 22), y: height - 4, "text-anchor": "middle" },
        one.label,
      ),
    );
    const drawn = series.map((one, at) => {
      const runs = runsOf(times, data.values[one.id] ?? []);
      const line = runs
        .map(
          (run) =>
            `M${run.map(([when, each]) => `${x(when).toFixed(1)},${y(each).toFixed(1)}`).join("L")}${run.length === 1 ? "h0.1" : ""}`,
        )
        .join("");
      const below = runs
        .map(
          (run) =>
            `M${x(run[0][0]).toFixed(1)},${y(0)}L${run.map(([when, each]) => `${x(when).toFixed(1)},${y(each).toFixed(1)}`).join("L")}L${x(run.at(-1)[0]).toFixed(1)},${y(0)}Z`,
        )
        .join("");
      return [area && at === 0 && s(`path.area.c${at}`, { d: below }), s(`path.series.c${at}`, { d: line })];
    });
    const edge =
      limit !== null && limit <= high && s("line.limit", { x1: LEFT, x2: width - RIGHT, y1: y(limit), y2: y(limit) });
    refill(svg, grid, left, bottom, drawn.reverse(), edge, crosshair());
    readings();
  }

  function crosshair() {
    if (cursor === null || data.times[cursor] === undefined) return null;
    const at = scale.x(data.times[cursor]);
    return s(
      "g",
      s("line.cross", { x1: at, x2: at, y1: TOP, y2: height - BOTTOM }),
      series.map(
        (one, place) =>
          value(one, cursor) !== null && s(`circle.dot.c${place}`, { cx: at, cy: scale.y(value(one, cursor)), r: 4 }),
      ),
    );
  }

  function readings() {
    const at = cursor ?? lastKnown();
    for (const one of series) {
      const each = at === null ? null : value(one, at);
      values.get(one.id).textContent = format(each);
      values.get(one.id).title = each === null ? "" : String(each);
    }
    moment.textContent = cursor === null || data.times[cursor] === undefined ? "" : clock(data.times[cursor]);
  }

  function lastKnown() {
    for (let at = data.times.length - 1; at >= 0; at -= 1) if (series.some((one) => value(one, at) !== null)) return at;
    return null;
  }

  function point(next) {
    cursor = next;
    draw();
  }

  svg.addEventListener("pointermove", (event) => {
    if (!data.times.length) return;
    const box = svg.getBoundingClientRect();
    const px = ((event.clientX - box.left) / box.width) * scale.width;
    let best = 0;
    data.times.forEach((when, at) => {
      if (Math.abs(scale.x(when) - px) < Math.abs(scale.x(data.times[best]) - px)) best = at;
    });
    point(best);
  });
  svg.addEventListener("pointerleave", () => point(null));
  svg.addEventListener("blur", () => point(null));
  svg.addEventListener("keydown", (event) => {
    const last = data.times.length - 1;
    const now = cursor ?? lastKnown() ?? last;
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last, PageUp: now - 10, PageDown: now + 10 }[
      event.key
    ];
    if (next === undefined || last < 0) return;
    event.preventDefault();
    point(Math.min(last, Math.max(0, next)));
  });
  new ResizeObserver(() => draw()).observe(frame);

  return {
    element,
    /** `from`: the start of the axis, if it is not the first time. */
    update(times, given, from = null) {
      data = { times, values: given, from };
      if (cursor !== null && cursor >= times.length) cursor = null;
      draw();
      fillTable();
    },
  };
}

/** The runs of values without gaps. */
function runsOf(times, values) {
  const runs = [];
  let run = null;
  values.forEach((each, at) => {
    if (each === null || each === undefined) run = null;
    else {
      if (!run) runs.push((run = []));
      run.push([times[at], each]);
    }
  });
  return runs;
}
