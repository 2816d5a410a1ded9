// Forms: fields with labels and hints, and the conversion of their text to values of the API.

import { freshId, h } from "./dom.js";
import { json, parse } from "./format.js";

/** Read a JSON object, or `name: value` on each line. */
export function pairs(text) {
  const trimmed = text.trim();
  if (!trimmed) return {};
  if (trimmed.startsWith("{")) return parse(trimmed);
  const found = {};
  for (const line of trimmed.split("\n")) {
    if (!line.trim()) continue;
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`"${line.trim()}" is not of the form name: value`);
    found[line.slice(0, at).trim()] = scalar(line.slice(at + 1).trim());
  }
  return found;
}

/** Parse true, 12 and "text" as JSON; other text is returned as it is. */
export function scalar(text) {
  if (/^(true|false|null|-?\d+(\.\d+)?|".*"|\[.*\]|\{.*\})$/s.test(text)) {
    try {
      return parse(text);
    } catch {
      return text;
    }
  }
  return text;
}

const READ = {
  text: (text) => text,
  password: (text) => text,
  area: (text) => text,
  number: (text) => {
    const number = Number(text.trim());
    if (!Number.isFinite(number)) throw new Error("Enter a number");
    return number;
  },
  whole: (text) => {
    if (!/^-?\d+$/.test(text.trim())) throw new Error("Enter a whole number");
    return Number(text.trim());
  },
  json: (text) => parse(text),
  pairs,
  list: (text) =>
    text
      .split(/[\n,]/)
      .map((one) => one.trim())
      .filter(Boolean),
  datetime: (text) => {
    const at = new Date(text);
    if (Number.isNaN(at.getTime())) throw new Error("Enter a date and a time");
    return at.toISOString();
  },
};

function control(field, id) {
  const common = {
    id,
    name: field.name,
    "aria-describedby": `${id}-hint`,
    required: field.required,
    autofocus: field.autofocus,
  };
  const given = field.value === undefined || field.value === null ? "" : field.value;
  if (field.kind === "choice") {
    const options = field.options.map((one) => (Array.isArray(one) ? one : [one, one]));
    return h(
      "select",
      common,
      options.map(([value, label]) => h("option", { value, selected: String(value) === String(given) }, label)),
    );
  }
  if (field.kind === "check") return h("input", { ...common, type: "checkbox", checked: Boolean(given) });
  if (["area", "json", "pairs"].includes(field.kind)) {
    const text = typeof given === "object" ? json(given, 2) : given;
    return h("textarea", {
      ...common,
      rows: field.rows ?? 4,
      spellcheck: "false",
      value: text,
      placeholder: field.placeholder,
    });
  }
  const type = { password: "password", datetime: "datetime-local" }[field.kind] ?? "text";
  return h("input", {
    ...common,
    type,
    value: given,
    step: type === "datetime-local" ? "1" : null,
    inputmode: { number: "decimal", whole: "numeric" }[field.kind],
    autocomplete: field.autocomplete ?? "off",
    spellcheck: "false",
    placeholder: field.placeholder,
    list: field.suggest ? `${id}-list` : null,
  });
}

/** Fields of a form: [{name, label, kind, hint, value, required, options, span}]; `read()` is null if one is wrong. */
export function fields(list) {
  const shown = list.map((field) => {
    const id = freshId("field");
    const input = control({ kind: "text", ...field }, id);
    const hint = h("small", { id: `${id}-hint` }, field.hint ?? "");
    const suggestions =
      field.suggest &&
      h(
        "datalist",
        { id: `${id}-list` },
        field.suggest.map((value) => h("option", { value })),
      );
    // The hint is not inside of the label: it describes the field, and is not a part of its name.
    const label = h(
      "label",
      { for: id },
      field.label ?? field.name,
      field.required && h("abbr", { title: "required" }, " *"),
    );
    const box =
      field.kind === "check"
        ? h("div.field.check", { class: field.span && "span" }, input, label, hint)
        : h("div.field", { class: field.span && "span" }, label, input, suggestions, hint);
    return { field: { kind: "text", ...field }, input, hint, box };
  });
  function wrong({ input, hint, field }, text) {
    input.setAttribute("aria-invalid", text ? "true" : "false");
    hint.classList.toggle("wrong", Boolean(text));
    hint.textContent = text || field.hint || "";
  }
  function read() {
    const values = {};
    let bad = null;
    for (const one of shown) {
      const { field, input } = one;
      wrong(one, "");
      if (field.kind === "check") values[field.name] = input.checked;
      else if (field.kind === "choice") {
        if (input.value !== "") values[field.name] = input.value;
      } else if (
        input.value === "" ||
        (field.kind !== "password" && input.value.trim() === "" && field.kind !== "area")
      ) {
        if (field.required) {
          wrong(one, "This field is required.");
          bad ??= input;
        }
      } else {
        try {
          values[field.name] = READ[field.kind](input.value);
        } catch (error) {
          wrong(one, `${error.message}.`);
          bad ??= input;
        }
      }
    }
    bad?.focus();
    return bad ? null : values;
  }
  return {
    element: h(
      "div.fields",
      shown.map((one) => one.box),
    ),
    read,
    input: (name) => shown.find((one) => one.field.name === name)?.input,
    box: (name) => shown.find((one) => one.field.name === name)?.box,
  };
}

/** A local time in the format of a datetime-local input. */
export function localValue(milliseconds) {
  const at = new Date(milliseconds);
  return new Date(milliseconds - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
}
