// Layout of a graph: nodes in layers from left to right, ordered so that few edges cross. Pure functions.

export const NODE = { width: 176, height: 38, across: 132, down: 9 };

/** The layer of each node: queues are last, an exchange is just before its destinations; cycles are broken. */
export function layersOf(nodes, edges) {
  const targets = new Map(nodes.map((node) => [node.id, []]));
  for (const edge of edges) targets.get(edge.from)?.push(edge.to);
  const exchanges = new Set(nodes.filter((node) => node.kind === "exchange").map((node) => node.id));
  const height = new Map();
  const path = new Set();
  // The longest path of exchanges after a node; edges back into the present path are left out, so that it ends.
  function measure(id) {
    if (height.has(id)) return height.get(id);
    path.add(id);
    let most = 0;
    for (const to of targets.get(id)) if (exchanges.has(to) && !path.has(to)) most = Math.max(most, measure(to) + 1);
    path.delete(id);
    height.set(id, most);
    return most;
  }
  const tallest = Math.max(0, ...[...exchanges].map(measure));
  return new Map(nodes.map((node) => [node.id, exchanges.has(node.id) ? tallest - height.get(node.id) : tallest + 1]));
}

/** Sort each column so that every node is near its neighbours. */
function ordered(columns, near) {
  const order = new Map();
  const number = () =>
    columns.forEach((column) => column.forEach((id, at) => order.set(id, (at + 0.5) / column.length)));
  number();
  const middle = (id) => {
    const places = (near.get(id) ?? []).map((one) => order.get(one)).filter((one) => one !== undefined);
    return places.length ? places.reduce((sum, one) => sum + one, 0) / places.length : order.get(id);
  };
  for (let round = 0; round < 12; round += 1) {
    for (const column of round % 2 ? [...columns].reverse() : columns) {
      const wanted = new Map(column.map((id) => [id, middle(id)]));
      column.sort((a, b) => wanted.get(a) - wanted.get(b));
      number();
    }
  }
}

/** The positions of all nodes, the points through which each edge goes, and the size of the graph. */
export function placed(nodes, edges) {
  const layer = layersOf(nodes, edges);
  const columns = [];
  for (const node of nodes) (columns[layer.get(node.id)] ??= []).push(node.id);
  const near = new Map();
  const join = (a, b) => {
    for (const [one, other] of [
      [a, b],
      [b, a],
    ])
      near.set(one, [...(near.get(one) ?? []), other]);
  };
  // An edge over several layers has a position of its own in each layer between, so that it crosses no node.
  const passes = edges.map((edge, number) => {
    const [from, to] = [layer.get(edge.from), layer.get(edge.to)];
    if (from === undefined || to === undefined) return null;
    const between = [];
    for (let at = from + 1; at < to; at += 1) {
      const id = `pass ${number} ${at}`;
      (columns[at] ??= []).push(id);
      between.push(id);
    }
    [edge.from, ...between, edge.to].reduce((a, b) => (join(a, b), b));
    return between;
  });
  const filled = columns.filter(Boolean);
  ordered(filled, near);
  const isPass = (id) => id.startsWith("pass ");
  const space = (id) => (isPass(id) ? 20 : NODE.height + NODE.down);
  const tall = Math.max(NODE.height, ...filled.map((column) => column.reduce((sum, id) => sum + space(id), 0)));
  const places = new Map();
  filled.forEach((column, at) => {
    const spare = (tall - column.reduce((sum, id) => sum + space(id), 0)) / (column.length + 1);
    let y = 10 + spare;
    for (const id of column) {
      places.set(id, { x: 10 + at * (NODE.width + NODE.across), y: isPass(id) ? y + 10 - NODE.height / 2 : y });
      y += space(id) + spare;
    }
  });
  const through = passes.map((between) => (between ?? []).map((id) => places.get(id)));
  return {
    places,
    through,
    width: 20 + filled.length * NODE.width + Math.max(0, filled.length - 1) * NODE.across,
    height: 20 + tall,
  };
}
