// The search runs in a worker, and browsers start none for a page that was opened from disk. There the worker's
// script runs in a hidden frame instead; both sides see the messages that a worker would pass. Served pages keep
// the browser's own workers. Only what the search uses is here: one script, messages as plain data.
if (location.protocol === "file:") {
  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.deliver(this, data);
      const script = this.inside.document.createElement("script");
      script.src = new URL(url, location);
      this.ready = new Promise((resolve, reject) => {
        script.onload = resolve;
        script.onerror = () => reject(new Error(`${script.src} cannot be loaded`));
      });
      this.inside.document.body.append(script);
    }

    postMessage(data) {
      this.ready.then(() => this.deliver(this.inside, data));
    }

    deliver(target, data) {
      setTimeout(() => target.dispatchEvent(new MessageEvent("message", { data })));
    }
  }
  window.Worker = FrameWorker;
}
