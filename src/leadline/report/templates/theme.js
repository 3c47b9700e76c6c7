// Light or dark: as the system has it, or as somebody chose.

const dresser = document.getElementById("theme");
const themes = ["auto", "light", "dark"];
let theme = "auto";
try { theme = localStorage.getItem("leadline-theme") || "auto"; } catch { /* no storage for files */ }

function dress() {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  dresser.textContent = "Theme: " + theme;
}

dresser.hidden = false;
dresser.addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  try { localStorage.setItem("leadline-theme", theme); } catch { /* no storage for files */ }
  dress();
});
dress();
