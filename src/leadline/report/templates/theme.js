// Light or dark theme: the system setting, or the one chosen with the button.

const themeButton = document.getElementById("theme");
const themes = ["auto", "light", "dark"];
let theme = "auto";
try { theme = localStorage.getItem("leadline-theme") || "auto"; } catch { /* no storage for file:// pages */ }

function applyTheme() {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  themeButton.textContent = "Theme: " + theme;
}

themeButton.hidden = false;
themeButton.addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  try { localStorage.setItem("leadline-theme", theme); } catch { /* no storage for file:// pages */ }
  applyTheme();
});
applyTheme();
