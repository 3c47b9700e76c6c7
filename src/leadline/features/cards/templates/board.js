const table = document.getElementById("board");
let sorted = -1;
let down = true;
for (const button of table.querySelectorAll("thead button")) {
  button.addEventListener("click", () => {
    const column = Number(button.dataset.column);
    down = sorted === column ? !down : column > 0;
    sorted = column;
    const key = (row) => row.children[column].dataset.key;
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const order = column === 0 ? key(a).localeCompare(key(b)) : Number(key(a)) - Number(key(b));
      return down ? -order : order;
    });
    table.tBodies[0].append(...rows);
    for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
    button.parentElement.setAttribute("aria-sort", down ? "descending" : "ascending");
  });
}
