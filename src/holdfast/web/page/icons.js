// Icons of the navigation, drawn with one stroke width.

import { s } from "./dom.js";

const PATHS = {
  overview: "M3 12.5 7 8l3 3 6-7M3 16.5h14",
  queues: "M3 5h14M3 10h14M3 15h9",
  dead: "M4 4l12 12M16 4 4 16",
  delayed: "M10 3a7 7 0 1 0 0 14a7 7 0 0 0 0-14M10 6.5V10l2.5 2",
  exchanges: "M3 7h12l-3-3M17 13H5l3 3",
  graph:
    "M4.5 7a2 2 0 1 0 0-4a2 2 0 0 0 0 4M15.500 7a2 2 0 1 0 0-4a2 2 0 0 0 0 4M15.500 17a2 2 0 1 0 0-4a2 2 0 0 0 0 4M6.500 5h7M6 6.500l8 7",
  connections: "M7 13 13 7M8.500 6.500l2-2a3.500 3.500 0 0 1 5 5l-2 2M11.500 13.500l-2 2a3.500 3.500 0 0 1-5-5l2-2",
  logs: "M4 3.500h12v4H4zM4 7.500h12v4.500H4zM4 12h12v4.500H4z",
  tables: "M3.500 4h13v12h-13zM3.500 8h13M8.500 8v8",
  migrations: "M4 10h11l-3.500-3.500M15 10l-3.500 3.500M4 5v10",
  pipelines: "M3 6h5l4 8h5M14.500 11.500 17 14l-2.500 2.500",
  users: "M10 9.500a3 3 0 1 0 0-6a3 3 0 0 0 0 6M4 16.500c.6-3 3-4.500 6-4.500s5.400 1.500 6 4.500",
  about: "M10 3a7 7 0 1 0 0 14a7 7 0 0 0 0-14M10 9.200v4.300M10 6.500v.2",
  theme: "M10 3a7 7 0 1 0 0 14zM10 3a7 7 0 0 1 0 14",
  keys: "M3 5.500h14v9H3zM6 8.500h.2M10 8.500h.2M14 8.500h.2M7 11.500h6",
  out: "M8 4H4v12h4M12 6.500 15.500 10 12 13.500M15.500 10H8",
  menu: "M3 6h14M3 10h14M3 14h14",
};

/** An icon; it is hidden from screen readers, so it needs a text or a label next to it. */
export function icon(name) {
  return s("svg.icon", { viewBox: "0 0 20 20", "aria-hidden": "true" }, s("path", { d: PATHS[name] }));
}

/** The logo. */
export function mark() {
  return s(
    "svg.mark",
    { viewBox: "0 0 32 32", "aria-hidden": "true" },
    s("rect", { width: 32, height: 32, rx: 7 }),
    s("path", { d: "M16 5v13M16 12c-4 0-6-2-6-5M16 15c4 0 6-2 6-5M16 18c-1 5-4 8-8 9M16 18c1 5 4 8 8 9M16 18v9" }),
  );
}
