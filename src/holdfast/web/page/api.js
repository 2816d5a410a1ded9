// Requests to the server, with the token of the session, which lasts as long as the tab.

import { json, parse } from "./format.js";

const BASE = new URL("../", import.meta.url); // works behind a proxy that adds a prefix, too
const TOKEN = "holdfast-token";
const WHO = "holdfast-who";
const own = (path) => `api/holdfast${path}`;

/** An error response of the server; status 0 if it did not respond. */
export class ApiError extends Error {
  constructor(status, word, reason) {
    super(reason || word || `The server responded with status ${status}.`);
    this.status = status;
    this.word = word;
  }
}

export const session = {
  get token() {
    return sessionStorage.getItem(TOKEN);
  },
  get who() {
    return parse(sessionStorage.getItem(WHO) ?? "null");
  },
  keep(token, who) {
    sessionStorage.setItem(TOKEN, token);
    sessionStorage.setItem(WHO, json(who));
  },
  forget() {
    sessionStorage.removeItem(TOKEN);
    sessionStorage.removeItem(WHO);
  },
  is(tag) {
    return (this.who?.tags ?? []).includes(tag);
  },
};

/** One segment of a path: `/` is `%2F`. A browser resolves `.` and `..` as relative paths, even percent-encoded. */
export function enc(name) {
  if (/^[.]{1,2}$/.test(name))
    throw new ApiError(400, "name", `A browser cannot request an object that is named ${name}: use the command line.`);
  return encodeURIComponent(name);
}

/** A path of names, each percent-encoded. */
export function path(strings, ...names) {
  return strings.reduce((left, right, at) => left + enc(names[at - 1]) + right);
}

function address(where, query) {
  const url = new URL(where, BASE);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

/** Send a request; return the response as JSON, null if it has no body. */
export async function ask(method, where, { query, body, signal, headers } = {}) {
  const sent = { Accept: "application/json", ...headers };
  if (session.token) sent.Authorization = `Bearer ${session.token}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let response;
  let text;
  try {
    response = await fetch(address(where, query), {
      method,
      headers: sent,
      body: body === undefined ? undefined : json(body),
      signal,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
    });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "offline", "The server cannot be reached.");
  }
  let answer = null;
  try {
    answer = text ? parse(text) : null;
  } catch {
    if (response.ok) throw new ApiError(response.status, "no JSON", "The server sent a response that is not JSON.");
  }
  if (response.ok) return answer;
  // RabbitMQ's API also answers 401 to missing permissions: only Holdfast's own says whether the token has expired.
  if (response.status === 401 && session.token && (where.startsWith(own("/")) || (await isExpired()))) {
    session.forget();
    window.dispatchEvent(new Event("holdfast-logged-out"));
  }
  throw new ApiError(response.status, answer?.error, answer?.reason);
}

async function isExpired() {
  try {
    await ask("GET", own("/whoami"));
    return false;
  } catch (error) {
    return error.status === 401 && Boolean(session.token);
  }
}

export const get = (where, query, signal) => ask("GET", own(where), { query, signal });
export const post = (where, body = {}) => ask("POST", own(where), { body });
export const patch = (where, body) => ask("PATCH", own(where), { body });
export const del = (where, query) => ask("DELETE", own(where), { query });

/** RabbitMQ's management API. */
export const rabbit = {
  get: (where, signal, query) => ask("GET", `api${where}`, { signal, query }),
  put: (where, body = {}) => ask("PUT", `api${where}`, { body }),
  post: (where, body = {}) => ask("POST", `api${where}`, { body }),
  del: (where, headers) => ask("DELETE", `api${where}`, { headers }),
};

/** The path of a queue in Holdfast's own API. */
export const queuePath = (vhost, name, rest = "") => `${path`/queues/${vhost}/${name}`}${rest}`;
