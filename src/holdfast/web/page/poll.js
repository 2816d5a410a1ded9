// Polling: every two seconds while the tab is visible; less and less often while the server does not respond.

import { ApiError } from "./api.js";

const STEP_MS = 2000;
const MOST_MS = 30000;
let failures = 0;

function announce() {
  window.dispatchEvent(new CustomEvent("holdfast-reach", { detail: failures }));
}

/** Record that the server responded, or did not. */
export function reached(yes) {
  const before = failures;
  failures = yes ? 0 : failures + 1;
  if (yes ? before > 0 : true) announce();
}

function visible() {
  if (document.visibilityState === "visible") return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => {
      if (document.visibilityState !== "visible") return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
  });
}

/** Call `work(signal)` at once and repeatedly until the signal aborts; `now()` calls it immediately. */
export function poll(work, signal, { every = STEP_MS, onError = () => {} } = {}) {
  let wake = () => {};
  let again = false;
  const sleep = (milliseconds) =>
    new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  signal.addEventListener("abort", () => wake());
  async function loop() {
    while (!signal.aborted) {
      await visible();
      if (signal.aborted) return;
      again = false;
      try {
        await work(signal);
        reached(true);
        onError(null);
      } catch (error) {
        if (signal.aborted || error.name === "AbortError") return;
        if (error instanceof ApiError && error.status === 0) reached(false);
        else if (error instanceof ApiError) reached(true);
        else console.error(error);
        onError(error);
      }
      if (signal.aborted) return;
      if (!again) await sleep(Math.min(MOST_MS, failures ? STEP_MS * 2 ** Math.min(failures, 4) : every));
    }
  }
  const running = loop();
  return {
    running,
    now() {
      again = true;
      wake();
    },
  };
}
