// Who may come in, and do what? Users, their rights in virtual hosts, the hosts, and your own tokens.

import { del, enc, get, post, rabbit, session } from "./api.js";
import { ask, confirm, dialog } from "./dialog.js";
import { h } from "./dom.js";
import { count, exact } from "./format.js";
import { fields } from "./form.js";
import { badge, cells, head } from "./parts.js";
import { table } from "./table.js";

const TAGS = "administrator, monitoring, policymaker, management; empty: AMQP only.";
const tagsOf = (tags) =>
  (Array.isArray(tags) ? tags : String(tags ?? "").split(",")).map((one) => one.trim()).filter(Boolean);
const LIFETIMES = [
  [3600, "an hour"],
  [86400, "a day"],
  [604800, "a week"],
  [2592000, "30 days"],
  [31536000, "a year"],
];

function tokensSection(view) {
  const list = table({
    label: "Your tokens",
    key: (row) => row.id,
    empty: "You have no tokens.",
    columns: [
      { id: "name", label: "Token", main: true, cell: (row) => row.name || "(no name)" },
      { id: "user", label: "User", cell: (row) => row.user },
      { id: "created", label: "Made", num: true, cell: (row) => cells.ago(row.created_at) },
      {
        id: "expires",
        label: "Runs out",
        num: true,
        cell: (row) => (row.expires_at ? cells.ago(row.expires_at) : "never"),
      },
      {
        id: "do",
        label: "",
        cell: (row) => ({
          mark: String(row.id),
          node: h("button.small.danger", { type: "button", onclick: () => drop(row) }, "Delete…"),
        }),
      },
    ],
  });
  async function add() {
    const form = fields([
      { name: "name", label: "What it is for", required: true, autofocus: true },
      { name: "lifetime", label: "Lives for", kind: "choice", options: LIFETIMES, value: 86400 },
    ]);
    const made = await ask({
      title: "Create a token",
      fields: form,
      yes: "Create",
      work: ({ name, lifetime }) => post("/tokens", { name, lifetime: Number(lifetime) }),
    });
    if (!made) return;
    polling.now();
    const copy = h(
      "button",
      {
        type: "button",
        onclick: () => navigator.clipboard?.writeText(made.token).then(() => (copy.textContent = "Copied")),
      },
      "Copy",
    );
    const shown = dialog({
      title: "Your new token",
      body: h(
        "div.stack",
        h("p", "This is the only time that it is shown. Send it as ", h("code", "Authorization: Bearer …")),
        h("code.secret", made.token),
        h("div.actions", copy, h("button.primary", { type: "button", onclick: () => shown.close() }, "I have kept it")),
      ),
    });
  }
  async function drop(row) {
    await confirm({
      title: "Delete a token",
      text: `Who uses ${row.name || "it"} can no longer come in.`,
      yes: "Delete the token",
      danger: true,
      work: () => del(`/tokens/${enc(row.id)}`),
      said: "The token is deleted.",
    });
    polling.now();
  }
  const element = h(
    "section.panel.flush",
    { "aria-label": "Your tokens" },
    h("header", h("h2", "Your tokens"), h("button", { type: "button", onclick: add }, "Create a token")),
    list.element,
  );
  const polling = view.poll(
    async (signal) => {
      const answer = await get("/tokens", null, signal);
      list.update(Array.isArray(answer) ? answer : answer.tokens);
    },
    { every: 10000 },
  );
  return element;
}

function userForm(user) {
  return fields([
    ...(user ? [] : [{ name: "name", label: "Name", required: true, autofocus: true }]),
    {
      name: "password",
      label: user ? "New password" : "Password",
      kind: "password",
      required: !user,
      autocomplete: "new-password",
      hint: user ? "Left empty: it stays as it is." : "",
    },
    { name: "tags", label: "Tags", value: user ? tagsOf(user.tags).join(", ") : "", hint: TAGS, span: true },
  ]);
}

function permissionForm(user, hosts, known) {
  return fields([
    { name: "vhost", label: "Virtual host", kind: "choice", options: hosts, value: known?.vhost ?? hosts[0] },
    {
      name: "configure",
      label: "May declare and delete",
      value: known?.configure ?? ".*",
      hint: "A regular expression of names; empty: none.",
    },
    { name: "write", label: "May write to", value: known?.write ?? ".*" },
    { name: "read", label: "May read from", value: known?.read ?? ".*" },
  ]);
}

function usersSection(view) {
  let hosts = ["/"];
  let permissions = [];
  const again = () => polling.now();
  const rights = (user) => permissions.filter((one) => one.user === user.name);
  const users = table({
    label: "Users",
    key: (row) => row.name,
    columns: [
      {
        id: "name",
        label: "User",
        main: true,
        cell: (row) => ({
          mark: row.name,
          node: [row.name, row.name === session.who?.name ? h("span.quiet", " (you)") : ""],
        }),
      },
      {
        id: "tags",
        label: "Tags",
        cell: (row) => ({ mark: String(row.tags), node: tagsOf(row.tags).map((one) => badge(one, "plain")) }),
      },
      {
        id: "rights",
        label: "Rights",
        wide: true,
        cell: (row) => ({
          mark: JSON.stringify(rights(row)),
          node: rights(row).length
            ? rights(row).map((one) =>
                h(
                  "div.row",
                  h("b", one.vhost),
                  h(
                    "code",
                    { title: "declare, write, read" },
                    [one.configure, one.write, one.read].map((each) => each || "(none)").join("  "),
                  ),
                  h(
                    "button.small",
                    {
                      type: "button",
                      "aria-label": `Change the rights of ${row.name} in ${one.vhost}`,
                      onclick: () => grant(row, one),
                    },
                    "Change",
                  ),
                  h(
                    "button.small.danger",
                    {
                      type: "button",
                      "aria-label": `Take the rights of ${row.name} in ${one.vhost}`,
                      onclick: () => revoke(row, one),
                    },
                    "Take",
                  ),
                ),
              )
            : h("span.quiet", "none: no virtual host is open to it"),
        }),
      },
      {
        id: "do",
        label: "",
        cell: (row) => ({
          mark: `${row.name}${row.tags}${hosts.length}`,
          node: h(
            "div.row",
            h("button.small", { type: "button", onclick: () => edit(row) }, "Change…"),
            h("button.small", { type: "button", onclick: () => grant(row) }, "Rights…"),
            h("button.small.danger", { type: "button", onclick: () => drop(row) }, "Delete…"),
          ),
        }),
      },
    ],
  });
  async function edit(user) {
    await ask({
      title: user ? `Change ${user.name}` : "Add a user",
      fields: userForm(user),
      yes: user ? "Change the user" : "Add the user",
      work: ({ name, password, tags }) => {
        // Definitions without a password leave the user's own; hashes need not travel, and not everybody sees them.
        if (!password) return rabbit.post("/definitions", { users: [{ name: user.name, tags: tags ?? "" }] });
        return rabbit.put(`/users/${enc(user?.name ?? name)}`, { password, tags: tags ?? "" });
      },
      said: "Done: it holds at once.",
    });
    again();
  }
  async function grant(user, known) {
    await ask({
      title: `Rights of ${user.name}`,
      fields: permissionForm(user, hosts, known),
      yes: "Grant",
      work: ({ vhost, configure = "", write = "", read = "" }) =>
        rabbit.put(`/permissions/${enc(vhost)}/${enc(user.name)}`, { configure, write, read }),
      said: `The rights of ${user.name} are kept.`,
    });
    again();
  }
  async function revoke(user, known) {
    await confirm({
      title: `Take the rights of ${user.name}`,
      text: `${user.name} can no longer use the virtual host ${known.vhost}.`,
      yes: "Take them",
      danger: true,
      work: () => rabbit.del(`/permissions/${enc(known.vhost)}/${enc(user.name)}`),
      said: "Taken.",
    });
    again();
  }
  async function drop(user) {
    await confirm({
      title: `Delete ${user.name}`,
      text: "Its rights go with it; its connections are closed.",
      yes: "Delete the user",
      typed: user.name,
      danger: true,
      work: () => rabbit.del(`/users/${enc(user.name)}`),
      said: `The user ${user.name} is deleted.`,
    });
    again();
  }
  const places = table({
    label: "Virtual hosts",
    key: (row) => row.name,
    columns: [
      { id: "name", label: "Virtual host", main: true, cell: (row) => row.name },
      { id: "says", label: "About", wide: true, cell: (row) => row.description || "–" },
      {
        id: "messages",
        label: "Messages of AMQP",
        num: true,
        cell: (row) => ({
          text: count(row.messages),
          title: `${exact(row.messages)}; those of queues that only programs use are not among them: see Queues`,
        }),
      },
      {
        id: "do",
        label: "",
        cell: (row) => ({
          mark: row.name,
          node:
            row.name === "/"
              ? ""
              : h("button.small.danger", { type: "button", onclick: () => dropHost(row) }, "Delete…"),
        }),
      },
    ],
  });
  async function addHost() {
    await ask({
      title: "Add a virtual host",
      fields: fields([
        { name: "name", label: "Name", required: true, autofocus: true },
        { name: "description", label: "About" },
      ]),
      yes: "Add",
      work: ({ name, ...rest }) => rabbit.put(`/vhosts/${enc(name)}`, rest),
      said: "The virtual host is there.",
    });
    again();
  }
  async function dropHost(row) {
    await confirm({
      title: `Delete ${row.name}`,
      text: "All its exchanges, queues and messages are deleted.",
      yes: "Delete the virtual host",
      typed: row.name,
      danger: true,
      work: () => rabbit.del(`/vhosts/${enc(row.name)}`),
      said: "The virtual host is deleted.",
    });
    again();
  }
  const element = h(
    "div.stack",
    h(
      "section.panel.flush",
      { "aria-label": "Users" },
      h("header", h("h2", "Users"), h("button.primary", { type: "button", onclick: () => edit(null) }, "Add a user")),
      users.element,
    ),
    h(
      "section.panel.flush",
      { "aria-label": "Virtual hosts" },
      h("header", h("h2", "Virtual hosts"), h("button", { type: "button", onclick: addHost }, "Add a virtual host")),
      places.element,
    ),
  );
  const polling = view.poll(
    async (signal) => {
      const [people, places_, given] = await Promise.all([
        rabbit.get("/users", signal),
        rabbit.get("/vhosts", signal),
        rabbit.get("/permissions", signal),
      ]);
      permissions = given;
      hosts = places_.map((one) => one.name);
      users.update(people);
      places.update(places_);
    },
    { every: 5000 },
  );
  return element;
}

export function page(view) {
  view.title("Users and access");
  view.root.append(head("Users and access"));
  if (session.is("administrator")) view.root.append(usersSection(view));
  else view.root.append(h("p.notice", "Users and virtual hosts are shown to administrators."));
  view.root.append(tokensSection(view));
}
