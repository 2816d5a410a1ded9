// Routing graph: exchanges on the left, queues on the right, bindings as lines.

import { enc, rabbit } from "./api.js";
import { h, refill, s } from "./dom.js";
import { exact, json, plural } from "./format.js";
import { placed, NODE } from "./layers.js";
import { chooser, filterBox, head } from "./parts.js";
import { go } from "./router.js";

/** Bindings that are drawn at most, loaded one page at a time: a larger graph is not legible. */
const BINDINGS_MAX = 2000;
const BINDINGS_PAGE = 500;

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Nodes and edges of the bindings; several bindings between two nodes are one edge. */
export function graphOf(exchanges, queues, bindings, wanted) {
  const bound = bindings.filter((one) => one.source);
  const used = new Set(bound.flatMap((one) => [`e ${one.source}`, `${one.destination_type[0]} ${one.destination}`]));
  const nodes = [
    ...exchanges
      .filter((one) => one.name && (used.has(`e ${one.name}`) || !one.name.startsWith("amq.")))
      .map((one) => ({ id: `e ${one.name}`, name: one.name, kind: "exchange", says: one.type })),
    ...queues
      .filter((one) => used.has(`q ${one.name}`))
      .map((one) => ({ id: `q ${one.name}`, name: one.name, kind: "queue", says: `${one.messages ?? 0} messages` })),
  ];
  const joined = new Map();
  for (const one of bound) {
    const [from, to] = [`e ${one.source}`, `${one.destination_type[0]} ${one.destination}`];
    const edge = joined.get(`${from}>${to}`) ?? { from, to, keys: [] };
    edge.keys.push(one.routing_key || (Object.keys(one.arguments ?? {}).length ? "headers" : ""));
    joined.set(`${from}>${to}`, edge);
  }
  let edges = [...joined.values()];
  if (!wanted) return { nodes, edges };
  // Matching nodes, and all from which they or which they can be reached.
  const kept = new Set(nodes.filter((node) => node.name.toLowerCase().includes(wanted)).map((node) => node.id));
  for (const [near, far] of [
    ["from", "to"],
    ["to", "from"],
  ]) {
    const seen = new Set(kept);
    const queue = [...seen];
    for (let id = queue.pop(); id !== undefined; id = queue.pop()) {
      for (const edge of edges)
        if (edge[near] === id && !seen.has(edge[far])) (seen.add(edge[far]), queue.push(edge[far]));
    }
    seen.forEach((id) => kept.add(id));
  }
  edges = edges.filter((edge) => kept.has(edge.from) && kept.has(edge.to));
  return { nodes: nodes.filter((node) => kept.has(node.id)), edges };
}

function draw(vhost, { nodes, edges }) {
  const { places, through, width, height } = placed(nodes, edges);
  const open = (node) =>
    node.kind === "exchange" ? go("exchanges", vhost, node.name) : go("queues", vhost, node.name);
  const lines = edges
    .map((edge, number) => {
      const [a, b] = [places.get(edge.from), places.get(edge.to)];
      if (!a || !b) return null;
      const end = { x: b.x - 2, y: b.y + NODE.height / 2 };
      let d = `M${a.x + NODE.width},${a.y + NODE.height / 2}`;
      let from = { x: a.x + NODE.width, y: a.y + NODE.height / 2 };
      const curve = (to) => {
        const bend = Math.max(40, (to.x - from.x) / 2);
        d += `C${from.x + bend},${from.y} ${to.x - bend},${to.y} ${to.x},${to.y}`;
        from = to;
      };
      for (const point of through[number]) {
        curve({ x: point.x, y: point.y + NODE.height / 2 });
        d += `h${NODE.width}`;
        from = { x: point.x + NODE.width, y: from.y };
      }
      curve(end);
      const keys = [...new Set(edge.keys)].filter(Boolean);
      const text = keys.length > 1 ? `${cut(keys[0], 13)} +${keys.length - 1}` : cut(keys[0] ?? "", 19);
      const says = () => s("title", null, keys.join(", "));
      return {
        edge,
        path: s("path.edge", { d, "marker-end": "url(#arrow)" }, says()),
        label: s("text.key", { x: end.x - 12, y: end.y - 5, "text-anchor": "end" }, text, says()),
      };
    })
    .filter(Boolean);
  const boxes = nodes.map((node) => {
    const { x, y } = places.get(node.id);
    const out = edges.filter((edge) => edge.from === node.id).length;
    const into = edges.filter((edge) => edge.to === node.id).length;
    const box = s(
      `g.node.${node.kind}`,
      {
        tabindex: "0",
        role: "link",
        transform: `translate(${x},${y})`,
        "aria-label": `${node.kind} ${node.name}, ${node.says}; ${into} in, ${out} out`,
        onclick: () => open(node),
        onfocus: () => light(node.id),
        onblur: () => light(null),
        onpointerenter: () => light(node.id),
        onpointerleave: () => light(null),
      },
      s("rect", { width: NODE.width, height: NODE.height, rx: node.kind === "exchange" ? 19 : 5 }),
      s("text", { x: 14, y: 17 }, cut(node.name, 24), s("title", null, node.name)),
      s("text.kind", { x: 14, y: 31 }, node.says),
    );
    box.dataset.id = node.id;
    return { node, box };
  });
  function light(id) {
    for (const { edge, path, label } of lines) {
      const near = edge.from === id || edge.to === id;
      for (const part of [path, label]) {
        part.classList.toggle("lit", near);
        part.classList.toggle("dim", id !== null && !near);
      }
    }
    const close = new Set(
      edges.filter((edge) => edge.from === id || edge.to === id).flatMap((edge) => [edge.from, edge.to]),
    );
    for (const { node, box } of boxes)
      box.classList.toggle("dim", id !== null && node.id !== id && !close.has(node.id));
  }
  const move = (event) => {
    const here = boxes.find(({ box }) => box === document.activeElement)?.node;
    if (!here) return;
    const from = places.get(here.id);
    const way = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0], j: [0, 1], k: [0, -1] }[
      event.key
    ];
    if (event.key === "Enter" || event.key === " ") open(here);
    else if (!way) return;
    else {
      // Sideways along an edge if there is one; else to the nearest node.
      const joined = new Set(
        edges.flatMap((edge) =>
          way[0] > 0 && edge.from === here.id ? [edge.to] : way[0] < 0 && edge.to === here.id ? [edge.from] : [],
        ),
      );
      const ahead = boxes
        .filter(({ node }) => !joined.size || joined.has(node.id))
        .map(({ node, box }) => ({ box, dx: places.get(node.id).x - from.x, dy: places.get(node.id).y - from.y }))
        .filter(({ dx, dy }) => (way[0] ? dx * way[0] > 0 : dx === 0 && dy * way[1] > 0))
        .sort((a, b) => Math.hypot(a.dx, a.dy * 2) - Math.hypot(b.dx, b.dy * 2));
      ahead[0]?.box.focus();
    }
    event.preventDefault();
  };
  return s(
    "svg.nodes",
    {
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      role: "group",
      "data-arrows": "",
      "aria-label": "Exchanges and the queues that are bound to them",
      onkeydown: move,
    },
    s(
      "defs",
      s(
        "marker#arrow",
        { viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" },
        s("path", { d: "M0,0L8,4L0,8z", fill: "context-stroke" }),
      ),
    ),
    lines.map((line) => line.path),
    lines.map((line) => line.label),
    boxes.map(({ box }) => box),
  );
}

/** The first bindings whose source is a named exchange, and how many of them there are. */
async function bindingsIn(at, signal) {
  const query = {
    page_size: BINDINGS_PAGE,
    use_regex: "true",
    name: "^.", // the implicit bindings of the default exchange are not drawn
    columns: "source,destination,destination_type,routing_key,arguments",
  };
  const items = [];
  for (let page = 1; ; page += 1) {
    const answer = await rabbit.get(`/bindings/${at}`, signal, { ...query, page });
    items.push(...answer.items);
    if (page >= answer.page_count || items.length >= BINDINGS_MAX) return { items, total: answer.filtered_count };
  }
}

export function page(view) {
  view.title("Routing graph");
  let data = null;
  let drawn = "";
  const vhost = () => view.query.get("vhost") ?? "/";
  const place = h("div.graph");
  const summary = h("p.quiet", { role: "status" });
  const host = chooser("Virtual host", ["/"], vhost(), (next) => (view.keep({ vhost: next }), polling.now()));
  const filter = filterBox("Filter by name", view.query.get("name"), (name) => (view.keep({ name }), show()));
  view.root.append(
    head("Routing graph", h("a.button", { href: "#/exchanges" }, "Show as list")),
    h("div.row", filter, host.element, summary),
    h("section.panel", { "aria-label": "Graph" }, place),
    h("p.quiet", "Rounded boxes are exchanges, square boxes are queues. Press Enter to open one; arrow keys move between them."),
  );

  function show() {
    const graph = graphOf(data.exchanges, data.queues, data.bindings, (view.query.get("name") ?? "").toLowerCase());
    summary.textContent = `${plural(graph.nodes.length, "node")}, ${plural(graph.edges.length, "edge")}`;
    if (data.total > data.bindings.length)
      summary.textContent += ` (first ${exact(data.bindings.length)} of ${exact(data.total)} bindings)`;
    // Drawn again only if it changed, so that the focus stays where it is.
    const mark = json([vhost(), graph]);
    if (mark === drawn) return;
    drawn = mark;
    const marked = document.activeElement?.dataset?.id;
    refill(place, graph.nodes.length ? draw(vhost(), graph) : h("p.empty", "No bindings in this virtual host."));
    if (marked) [...place.querySelectorAll(".node")].find((one) => one.dataset.id === marked)?.focus();
  }

  const polling = view.poll(
    async (signal) => {
      const at = enc(vhost());
      const [exchanges, queues, bindings, hosts] = await Promise.all([
        rabbit.get(`/exchanges/${at}`, signal, { columns: "name,type" }),
        rabbit.get(`/queues/${at}`, signal, { columns: "name,messages" }),
        bindingsIn(at, signal),
        rabbit.get("/vhosts", signal),
      ]);
      host.fill(
        hosts.map((one) => one.name),
        vhost(),
      );
      data = { exchanges, queues, bindings: bindings.items, total: bindings.total };
      show();
    },
    { every: 5000 },
  );
}
