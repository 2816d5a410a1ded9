// Colour scheme, applied before the first paint so that a dark page never flashes white: therefore not a module.
(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("holdfast-theme");
  } catch {
    // Storage may be disabled: then the system's scheme is used.
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
