// Login page: exchanges user name and password for a token that lasts as long as the tab.

import { post, session } from "./api.js";
import { doing } from "./dialog.js";
import { h, refill } from "./dom.js";
import { mark } from "./icons.js";
import { themeButton } from "./shell.js";

const WRONG = "Wrong user name or password, or the user may log in only from the server's machine.";

/** Show the login form; `onIn` is called after a successful login. */
export function login(root, onIn) {
  document.title = "Log in · Holdfast";
  const name = h("input", {
    id: "name",
    type: "text",
    autocomplete: "username",
    required: true,
    autocapitalize: "none",
    spellcheck: "false",
  });
  const password = h("input", { id: "password", type: "password", autocomplete: "current-password", required: true });
  const wrong = h("p.notice.bad", { role: "alert", hidden: true });
  const button = h("button.primary", { type: "submit" }, "Log in");
  async function submit(event) {
    event.preventDefault();
    wrong.hidden = true;
    await doing(button, async () => {
      try {
        const { token, ...who } = await post("/login", { username: name.value, password: password.value });
        session.keep(token, who);
        onIn();
      } catch (error) {
        wrong.hidden = false;
        wrong.textContent = error.status === 401 ? WRONG : error.message;
        password.select();
      }
    });
  }
  refill(
    root,
    h(
      "main.login#main",
      { tabindex: "-1" },
      h(
        "form.panel.stack",
        { onsubmit: submit, "aria-label": "Log in" },
        h("h1", mark(), "Holdfast"),
        h("label.field", { for: "name" }, h("span", "User name"), name),
        h("label.field", { for: "password" }, h("span", "Password"), password),
        wrong,
        button,
      ),
      themeButton(),
    ),
  );
  name.focus();
}
