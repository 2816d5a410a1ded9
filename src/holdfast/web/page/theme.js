// Which colours? Chosen before the first paint, so that a dark page never flashes white. Not a module for that reason.
(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("holdfast-theme");
  } catch {
    // Storage may be forbidden: then the system's choice holds.
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
