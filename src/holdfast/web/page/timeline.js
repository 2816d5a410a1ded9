// Time axis of delayed messages: counts by due time, one lane for each queue.

import { timeSteps } from "./chart.js";
import { h, refill, s } from "./dom.js";
import { clock, duration, ms, plural } from "./format.js";

const LANE = 56;

/** A time axis. update([{label, href, buckets: [{start_at, end_at, count}]}]) draws it; lanes may have no label. */
export function timeline({ label }) {
  const svg = s("svg", { role: "group", "data-arrows": "", "aria-label": `${label}: counts by time; arrow keys move` });
  const status = h("p.quiet", { role: "status" }, " ");
  const element = h("div.axis", svg, status);
  let lanes = [];

  function draw() {
    const width = svg.clientWidth || 600;
    const named = lanes.some((lane) => lane.label);
    const left = named ? Math.min(150, width * 0.3) : 8;
    const height = lanes.length * LANE + 24;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    const all = lanes.flatMap((lane) => lane.buckets);
    if (!all.length) return refill(svg);
    const from = Math.min(Date.now(), ...all.map((one) => ms(one.start_at)));
    const to = Math.max(from + 1000, ...all.map((one) => ms(one.end_at)));
    const most = Math.max(1, ...all.map((one) => one.count));
    const x = (at) => left + ((at - from) / (to - from)) * (width - left - 10);
    const ticks = timeSteps(from, to, Math.max(2, (width - left) / 110));
    const marked = document.activeElement?.dataset?.bucket;
    refill(
      svg,
      ticks.map((one) => [
        s("line.tick", { x1: x(one.at), x2: x(one.at), y1: 0, y2: height - 22 }),
        s(
          "text",
          { x: Math.min(Math.max(x(one.at), left + 18), width - 30), y: height - 6, "text-anchor": "middle" },
          one.label,
        ),
      ]),
      lanes.map((lane, row) => drawLane(lane, row, { x, left, width, most })),
    );
    if (marked) svg.querySelector(`[data-bucket="${CSS.escape(marked)}"]`)?.focus();
    return svg;
  }

  function drawLane(lane, row, { x, left, width, most }) {
    const base = (row + 1) * LANE;
    const name =
      lane.label &&
      s(
        "a",
        { href: lane.href },
        s(
          "text.lane",
          { x: 2, y: base - LANE / 2 + 6 },
          lane.label.length > 20 ? `${lane.label.slice(0, 19)}…` : lane.label,
          s("title", null, lane.label),
        ),
      );
    const bars = lane.buckets
      .filter((one) => one.count > 0)
      .map((one) => {
        const [start, end] = [x(ms(one.start_at)), x(ms(one.end_at))];
        const high = Math.max(3, (one.count / most) * (LANE - 14));
        const says = `${lane.label ? `${lane.label}: ` : ""}${plural(one.count, "message")} due ${clock(ms(one.start_at))}${end - start > 1 && ms(one.end_at) - ms(one.start_at) > 1000 ? ` to ${clock(ms(one.end_at), { day: false })}` : ""}, in ${duration(Math.max(0, (ms(one.start_at) - Date.now()) / 1000))}`;
        return s(
          "g",
          {
            tabindex: "0",
            role: "img",
            "aria-label": says,
            "data-bucket": `${row}-${one.start_at}`,
            onfocus: () => (status.textContent = says),
            onpointerenter: () => (status.textContent = says),
          },
          s("rect", { x: start, y: base - LANE, width: Math.max(4, end - start), height: LANE, fill: "transparent" }),
          s("rect.bar", { x: start + 0.5, y: base - high, width: Math.max(3, end - start - 1), height: high, rx: 1.5 }),
        );
      });
    return s("g", name, s("line", { x1: left, x2: width - 10, y1: base + 0.5, y2: base + 0.5 }), bars);
  }

  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step) return;
    const bars = [...svg.querySelectorAll("g[tabindex]")];
    bars[bars.indexOf(document.activeElement) + step]?.focus();
    event.preventDefault();
  });
  new ResizeObserver(() => draw()).observe(element);

  return {
    element,
    update(given) {
      lanes = given;
      if (!lanes.some((lane) => lane.buckets.length)) status.textContent = "";
      draw();
    },
  };
}
