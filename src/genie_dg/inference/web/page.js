"use strict";
(function () {
  var byId = document.getElementById.bind(document);
  var latest = 0, shown = "";

  function element(tag, name, text) {
    var made = document.createElement(tag);
    made.className = name;
    made.textContent = text;
    return made;
  }

  function say(problem) {
    byId("problem").hidden = !problem;
    byId("problem").textContent = problem;
    byId("classes").replaceChildren();
  }

  function show(answer) {
    say("");
    answer.classes.forEach(function (one) {
      var line = document.createElement("li"), bar = element("div", "bar", ""), part = document.createElement("span");
      part.style.width = (100 * one.probability).toFixed(2) + "%";
      bar.append(part);
      line.append(element("span", "name", one.name));
      line.append(element("span", "value", (100 * one.probability).toFixed(1) + " %"), bar);
      byId("classes").append(line);
    });
  }

  function send(file) {
    var number = ++latest;
    if (shown) { URL.revokeObjectURL(shown); }
    shown = URL.createObjectURL(file);
    byId("picture").src = shown;
    byId("picture").hidden = false;
    byId("hint").textContent = "Looking at " + (file.name || "the picture") + " …";
    fetch("/predict", { method: "POST", body: file }).then(function (response) {
      return response.json();
    }).catch(function () {
      return { problem: "The server does not answer; is genie-dg serve still running?" };
    }).then(function (answer) {
      if (number !== latest) { return; }
      byId("hint").textContent = (file.name || "The picture") + "; drop, paste or choose another one";
      byId("picture").hidden = Boolean(answer.problem);
      if (answer.problem) { say(answer.problem); } else { show(answer); }
    });
  }

  byId("file").addEventListener("change", function () {
    if (this.files.length) { send(this.files[0]); }
    this.value = "";
  });
  ["dragenter", "dragover", "dragleave", "drop"].forEach(function (kind) {
    document.addEventListener(kind, function (event) {
      event.preventDefault();
      byId("drop").classList.toggle("over", kind === "dragenter" || kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files.length) { send(event.dataTransfer.files[0]); }
    });
  });
  document.addEventListener("paste", function (event) {
    if (event.clipboardData.files.length) { send(event.clipboardData.files[0]); }
  });
  fetch("/model").then(function (response) { return response.json(); }).then(function (model) {
    byId("model").textContent = model.lines.join("\n");
  });
}());
