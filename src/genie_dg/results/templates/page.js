"use strict";
(function () {
  function value(row, column) {
    var cell = row.cells[column];
    var given = cell.getAttribute("data-value");
    return given === null ? cell.textContent.trim() : given;
  }
  function sort(table, column, header) {
    var body = table.tBodies[0];
    var rows = Array.prototype.slice.call(body.rows);
    var filled = rows.filter(function (row) { return value(row, column) !== ""; });
    var numeric = filled.every(function (row) { return isFinite(Number(value(row, column))); });
    var before = header.getAttribute("aria-sort");
    var down = before === "none" ? numeric : before === "ascending";
    rows.sort(function (a, b) {
      var x = value(a, column), y = value(b, column);
      if (x === "" || y === "") { return (x === "") - (y === ""); }
      var order = numeric ? Number(x) - Number(y) : x.localeCompare(y, "en", { numeric: true });
      return down ? -order : order;
    });
    Array.prototype.forEach.call(table.tHead.rows[0].cells, function (cell) {
      cell.setAttribute("aria-sort", "none");
    });
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    rows.forEach(function (row) { body.appendChild(row); });
  }
  Array.prototype.forEach.call(document.querySelectorAll("table.sorts"), function (table) {
    Array.prototype.forEach.call(table.tHead.rows[0].cells, function (header, column) {
      var button = document.createElement("button");
      button.type = "button";
      button.textContent = header.textContent;
      button.addEventListener("click", function () { sort(table, column, header); });
      header.textContent = "";
      header.appendChild(button);
      header.setAttribute("aria-sort", "none");
    });
  });
  var save = document.getElementById("save");
  save.hidden = false;
  save.addEventListener("click", function () {
    var blob = new Blob([document.getElementById("numbers").textContent], { type: "application/json" });
    var link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = "report.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });
})();
