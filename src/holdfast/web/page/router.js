// Addresses: the part after #, such as /queues/%2F/orders?tab=dead, with each name percent-encoded.

/** Return the path segments and the query of an address after #. */
export function parseHash(hash) {
  const [where, query = ""] = hash.replace(/^#/, "").split("?", 2);
  const parts = where.split("/").filter(Boolean).map(decode);
  return { parts, query: new URLSearchParams(query) };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Return an address after #: link("queues", vhost, name), with a query if the last argument is an object. */
export function link(...parts) {
  const query = typeof parts.at(-1) === "object" ? parts.pop() : {};
  const search = new URLSearchParams(
    Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  ).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

/** Open a page. */
export function go(...parts) {
  location.hash = link(...parts);
}

/** Return the route of a path. Routes: [[pattern, page]]; a segment that starts with : matches any value. */
export function match(routes, parts) {
  for (const [pattern, page] of routes) {
    const names = pattern.split("/").filter(Boolean);
    if (names.length !== parts.length) continue;
    const params = {};
    const fits = names.every((name, at) => {
      if (!name.startsWith(":")) return name === parts[at];
      params[name.slice(1)] = parts[at];
      return true;
    });
    if (fits) return { page, params };
  }
  return null;
}
