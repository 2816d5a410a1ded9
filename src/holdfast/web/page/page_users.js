// Users, their permissions in virtual hosts, the virtual hosts, and tokens.

import { del, enc, get, post, rabbit, session } from "./api.js";
import { ask, confirm, dialog } from "./dialog.js";
import { h } from "./dom.js";
import { count, exact } from "./format.js";
import { fields } from "./form.js";
import { badge, cells, head } from "./parts.js";
import { table } from "./table.js";

const TAGS = "administrator, monitoring, policymaker or management, separated by commas; without a tag most pages are not available.";
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
    label: "Tokens",
    key: (row) => row.id,
    empty: "No tokens.",
    columns: [
      { id: "name", label: "Token", main: true, cell: (row) => row.name || "(no name)" },
      { id: "user", label: "User", cell: (row) => row.user },
      { id: "created", label: "Created", num: true, cell: (row) => cells.ago(row.created_at) },
      {
        id: "expires",
        label: "Expires",
        num: true,
        cell: (row) => (row.expires_at ? cells.ago(row.expires_at) : "never"),
      },
      {
        id: "do",
        label: "",
        cell: (row) => ({
          mark: String(row.id),
          node: h("button.small.danger", { type: "button", onclick: () => drop(row) }, "Revoke…"),
        }),
      },
    ],
  });
  async function add() {
    const form = fields([
      { name: "name", label: "Name", required: true, autofocus: true },
      { name: "lifetime", label: "Lifetime", kind: "choice", options: LIFETIMES, value: 86400 },
    ]);
    const made = await ask({
      title: "Create a token",
      fields: form,
      yes: "Create token",
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
        h("p", "The token is shown only once. Send it as ", h("code", "Authorization: Bearer …")),
        h("code.secret", made.token),
        h("div.actions", copy, h("button.primary", { type: "button", onclick: () => shown.close() }, "I have saved it")),
      ),
    });
  }
  async function drop(row) {
    await confirm({
      title: "Revoke token",
      text: `Programs that use ${row.name || "it"} can no longer authenticate.`,
      yes: "Revoke token",
      danger: true,
      work: () => del(`/tokens/${enc(row.id)}`),
      said: "Token revoked.",
    });
    polling.now();
  }
  const element = h(
    "section.panel.flush",
    { "aria-label": "Tokens" },
    h("header", h("h2", "Tokens"), h("button", { type: "button", onclick: add }, "Create a token")),
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
      hint: user ? "Leave it empty to keep the present password." : "",
    },
    { name: "tags", label: "Tags", value: user ? tagsOf(user.tags).join(", ") : "", hint: TAGS, span: true },
  ]);
}

function permissionForm(user, hosts, known) {
  return fields([
    { name: "vhost", label: "Virtual host", kind: "choice", options: hosts, value: known?.vhost ?? hosts[0] },
    {
      name: "configure",
      label: "Configure",
      value: known?.configure ?? ".*",
      hint: "Regular expression for names of queues and exchanges; empty: none.",
    },
    { name: "write", label: "Write", value: known?.write ?? ".*" },
    { name: "read", label: "Read", value: known?.read ?? ".*" },
  ]);
}

function usersSection(view) {
  let hosts = ["/"];
  let permissions = [];
  const again = () => polling.now();
  const permissionsOf = (user) => permissions.filter((one) => one.user === user.name);
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
        id: "permissions",
        label: "Permissions",
        wide: true,
        cell: (row) => ({
          mark: JSON.stringify(permissionsOf(row)),
          node: permissionsOf(row).length
            ? permissionsOf(row).map((one) =>
                h(
                  "div.row",
                  h("b", one.vhost),
                  h(
                    "code",
                    { title: "configure, write, read" },
                    [one.configure, one.write, one.read].map((each) => each || "(none)").join("  "),
                  ),
                  h(
                    "button.small",
                    {
                      type: "button",
                      "aria-label": `Edit the permissions of ${row.name} in ${one.vhost}`,
                      onclick: () => grant(row, one),
                    },
                    "Edit",
                  ),
                  h(
                    "button.small.danger",
                    {
                      type: "button",
                      "aria-label": `Revoke the permissions of ${row.name} in ${one.vhost}`,
                      onclick: () => revoke(row, one),
                    },
                    "Revoke",
                  ),
                ),
              )
            : h("span.quiet", "none: no access to any virtual host"),
        }),
      },
      {
        id: "do",
        label: "",
        cell: (row) => ({
          mark: `${row.name}${row.tags}${hosts.length}`,
          node: h(
            "div.row",
            h("button.small", { type: "button", onclick: () => edit(row) }, "Edit…"),
            h("button.small", { type: "button", onclick: () => grant(row) }, "Permissions…"),
            h("button.small.danger", { type: "button", onclick: () => drop(row) }, "Delete…"),
          ),
        }),
      },
    ],
  });
  async function edit(user) {
    await ask({
      title: user ? `Edit ${user.name}` : "Add a user",
      fields: userForm(user),
      yes: user ? "Save" : "Add user",
      work: ({ name, password, tags }) => {
        // Definitions without a password keep the present one; no hash has to be sent, and not every caller sees it.
        if (!password) return rabbit.post("/definitions", { users: [{ name: user.name, tags: tags ?? "" }] });
        return rabbit.put(`/users/${enc(user?.name ?? name)}`, { password, tags: tags ?? "" });
      },
      said: "User saved.",
    });
    again();
  }
  async function grant(user, known) {
    await ask({
      title: `Permissions of ${user.name}`,
      fields: permissionForm(user, hosts, known),
      yes: "Save permissions",
      work: ({ vhost, configure = "", write = "", read = "" }) =>
        rabbit.put(`/permissions/${enc(vhost)}/${enc(user.name)}`, { configure, write, read }),
      said: `Permissions of ${user.name} saved.`,
    });
    again();
  }
  async function revoke(user, known) {
    await confirm({
      title: `Revoke permissions of ${user.name}`,
      text: `${user.name} can no longer use the virtual host ${known.vhost}.`,
      yes: "Revoke permissions",
      danger: true,
      work: () => rabbit.del(`/permissions/${enc(known.vhost)}/${enc(user.name)}`),
      said: "Permissions revoked.",
    });
    again();
  }
  async function drop(user) {
    await confirm({
      title: `Delete ${user.name}`,
      text: "This deletes the user with all permissions, and closes the user's connections.",
      yes: "Delete user",
      typed: user.name,
      danger: true,
      work: () => rabbit.del(`/users/${enc(user.name)}`),
      said: `User ${user.name} deleted.`,
    });
    again();
  }
  const vhosts = table({
    label: "Virtual hosts",
    key: (row) => row.name,
    columns: [
      { id: "name", label: "Virtual host", main: true, cell: (row) => row.name },
      { id: "description", label: "Description", wide: true, cell: (row) => row.description || "–" },
      {
        id: "messages",
        label: "AMQP messages",
        num: true,
        cell: (row) => ({
          text: count(row.messages),
          title: `${exact(row.messages)}, without those in queues that are not declared in the broker: see Queues`,
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
        { name: "description", label: "Description" },
      ]),
      yes: "Add virtual host",
      work: ({ name, ...rest }) => rabbit.put(`/vhosts/${enc(name)}`, rest),
      said: "Virtual host added.",
    });
    again();
  }
  async function dropHost(row) {
    await confirm({
      title: `Delete ${row.name}`,
      text: "This deletes the virtual host with all its exchanges, queues and messages. It cannot be undone.",
      yes: "Delete virtual host",
      typed: row.name,
      danger: true,
      work: () => rabbit.del(`/vhosts/${enc(row.name)}`),
      said: "Virtual host deleted.",
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
      vhosts.element,
    ),
  );
  const polling = view.poll(
    async (signal) => {
      const [people, found, given] = await Promise.all([
        rabbit.get("/users", signal),
        rabbit.get("/vhosts", signal),
        rabbit.get("/permissions", signal),
      ]);
      permissions = given;
      hosts = found.map((one) => one.name);
      users.update(people);
      vhosts.update(found);
    },
    { every: 5000 },
  );
  return element;
}

export function page(view) {
  view.title("Users and permissions");
  view.root.append(head("Users and permissions"));
  if (session.is("administrator")) view.root.append(usersSection(view));
  else view.root.append(h("p.notice", "Users and virtual hosts are visible to administrators only."));
  view.root.append(tokensSection(view));
}
