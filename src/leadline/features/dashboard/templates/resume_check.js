// A stopped run may be resumed: its page checks now and then while it is visible, and reloads when the run is running.

// What is open or focused in the report is not replaced.
const inUse = () => drawer.open || document.querySelector("article").contains(document.activeElement);

async function checkResumed() {
  const address = find("main").dataset.status;
  if (!address || document.hidden || inUse()) return;
  try {
    const answer = await fetch(address, { cache: "no-store" });
    if (answer.ok && (await answer.json()).status === "running" && !inUse()) location.reload();
  } catch { /* the server is not reachable; try again later */ }
}

setInterval(checkResumed, 3000);
document.addEventListener("visibilitychange", checkResumed);

