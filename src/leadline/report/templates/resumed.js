// A run that stopped may go on: its page asks now and then while somebody looks at it, and is live when it does.

// Nothing is taken from under somebody's hands: what is open or focused in the report stays as it is.
const inUse = () => drawer.open || document.querySelector("article").contains(document.activeElement);

async function askWhetherItGoesOn() {
  const place = find("main").dataset.status;
  if (!place || document.hidden || inUse()) return;
  try {
    const answer = await fetch(place, { cache: "no-store" });
    if (answer.ok && (await answer.json()).status === "running" && !inUse()) location.reload();
  } catch { /* the server is away; asked again later */ }
}

setInterval(askWhetherItGoesOn, 3000);
document.addEventListener("visibilitychange", askWhetherItGoesOn);

